/* stop.c - `exaserve stop`: ask the service to end, and wait until it is gone. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/target.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    POLL_US = 200 * 1000,
    SLURM_POLL_US = 1000 * 1000, /* each is a squeue: gentle to the controller */
};

static int ask(struct target *t, struct err *e)
{
    if (!t->local)
        return job_stop(t->job, e);
    if (t->owner && kill(t->owner, SIGTERM) != 0 && errno != ESRCH)
        return err_sys(e, errno, "cannot signal process %d", (int)t->owner);
    return 0;
}

static int wait_gone(struct target *t, uint64_t timeout_s, struct err *e)
{
    struct progress_line line = {""};
    uint64_t deadline = clock_now_us() + timeout_s * 1000000;
    for (;;) {
        struct err why = ERR_INIT;
        int rc = target_state(t, &why);
        if (rc)
            say_progress(&line, "%s",
                         why.text); /* Slurm may be slow: try again until the deadline */
        else if (target_ended(t))
            return 0;
        else if (target_endpoint(t, NULL) == 0)
            say_progress(&line, "%s: %s", t->endpoint.state, t->endpoint.progress);
        else
            say_progress(&line, "stopping job %s", t->job);
        if (clock_now_us() >= deadline)
            return err_set(e, ERR_TIMEOUT, "job %s still runs after %" PRIu64 " s", t->job,
                           timeout_s);
        clock_sleep_us(t->local ? POLL_US : SLURM_POLL_US);
    }
}

static int run(int argc, char **argv)
{
    uint64_t timeout_s = 300;
    bool no_wait = false;
    const struct opt opts[] = {
        {"timeout", 't', OPT_UINT, "SECONDS", &timeout_s, 1, 86400,
         "how long to wait until it is gone (300)"},
        {"no-wait", 'n', OPT_FLAG, .value = &no_wait, .help = "ask, and do not wait"},
        {.name = NULL},
    };
    struct target *t;
    int code = target_of_line(&t, &COMMAND_STOP, opts, argc, argv);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    int rc = target_state(t, &e);
    bool was_over = !rc && target_ended(t);
    if (!rc && !was_over)
        rc = ask(t, &e);
    if (!rc && !was_over && !no_wait)
        rc = wait_gone(t, timeout_s, &e);
    if (rc)
        code = say_error("stop", &e);
    else
        code = EXIT_READY;
    if (!rc)
        fprintf(stderr, "job %s %s\n", t->job,
                was_over  ? "had ended already"
                : no_wait ? "was asked to stop"
                          : "has ended");
    free(t);
    return code;
}

const struct command COMMAND_STOP = {
    .name = "stop",
    .operands = "[JOB]",
    .max_operands = 1,
    .summary = "end the service: running requests finish, then everything goes",
    .details = "Take no new requests, let running ones finish (`grace` in the configuration), end "
               "the job,\n"
               "and wait until it is gone. Exit code 3: it still runs after the timeout.\n",
    .run = run,
};
