"""The side that runs jobs: what a handler's author imports, and the processes that run the handlers.

A pool is a supervisor (Trio; decides), a zygote (imports the app once, forks) and workers (one job
at a time each). Which file belongs to which process:

    app errors context                                   the author's, in any process that imports them
    main supervisor brood slots zygote_link pool_link    the supervisor
    generation reloading watching recycling recycler     the supervisor, replacing code and workers
    zygote birth sources                                 the zygote, up to the moment of a fork
    sync_worker link attempt payload report              a worker
    control                                              what supervisor and zygote say to each other
    startpage                                            what supervisor and worker share
    process sweep log                                    the system, for all three

Trio is loaded in the supervisor only: what the zygote imports, every worker keeps in memory.
"""
