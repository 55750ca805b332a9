/* patience.h - times on which schedulers, routers and workers must agree. */
#ifndef EXA_RANKS_PATIENCE_H
#define EXA_RANKS_PATIENCE_H

enum {
    /* Ticks come several times a second: a longer gap is this process's own pause (a suspended job, a frozen machine), and says
     * nothing of others. */
    PAUSE_US = 1000000,
    /* With nobody to serve or to be told by: a cable may be healed until then. Slurm's own patience with a node that is out of reach
     * (SlurmdTimeout). */
    ALONE_US = 300 * 1000000,
};

#endif
