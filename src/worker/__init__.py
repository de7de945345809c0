"""The side that runs jobs: what a handler's author imports, and the processes that run the handlers.

A pool is a supervisor (Trio; decides), a zygote (imports the app once, forks) and workers (one job
at a time each). Which file belongs to which process:

    app errors context        the author's: in whatever process imports the handlers
    main supervisor brood slots zygote_link pool_link sweep log      supervisor
    zygote control                                                  zygote (control: both ends)
    birth sync_worker link attempt payload                          worker
    startpage process                                               shared, each with its one purpose

Trio is loaded in the supervisor only: what the zygote imports, every worker keeps in memory.
"""
