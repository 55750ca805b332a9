/* command.c - see command.h. */
#include "slurm/command.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ENV = 4096, READ_BYTES = 4096 };

/* Our environment with c->env over it; the strings are borrowed. */
static char **environment(const char *const *over)
{
    size_t n = 0, extra = 0;
    while (environ[n])
        n++;
    while (over && over[extra])
        extra++;
    char **env = calloc(n + extra + 1, sizeof *env);
    if (!env)
        return NULL;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool replaced = false;
        size_t name = strcspn(environ[i], "=") + 1;
        for (size_t j = 0; j < extra && !replaced; j++)
            replaced = strncmp(environ[i], over[j], name) == 0;
        if (!replaced)
            env[k++] = environ[i];
    }
    for (size_t j = 0; j < extra; j++)
        env[k++] = (char *)over[j];
    return env;
}

static int spawn(pid_t *pid, const struct command *c, int out, int err)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    char **env = environment(c->env);
    if (!env)
        return ENOMEM;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&fa, err, STDERR_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    int rc = posix_spawnp(pid, c->argv[0], &fa, &attr, (char *const *)c->argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    free(env);
    return rc;
}

/* Read what is there; false: the end (or an error, which is an end here). */
static bool drain(int fd, struct buf *b)
{
    char tmp[READ_BYTES];
    for (;;) {
        ssize_t k = read(fd, tmp, sizeof tmp);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN;
        if (k == 0)
            return false;
        if (b->len + (size_t)k <= b->max)
            buf_put(b, tmp,
                    (size_t)k); /* past the cap: read and dropped, so the child does not block */
    }
}

/* Until the child has ended: what it left running may hold the pipes longer, and is not waited for. */
static int attend(struct command_result *r, pid_t pid, int out, int err, uint64_t deadline,
                  const char *name, struct err *e)
{
    int child = pidfd_open(pid, 0);
    if (child < 0) {
        int rc = err_sys(e, errno, "cannot watch %s", name);
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return rc;
    }
    struct pollfd p[3] = {{out, POLLIN, 0}, {err, POLLIN, 0}, {child, POLLIN, 0}};
    int rc = 0;
    while (!(p[2].revents & POLLIN)) {
        uint64_t now = clock_now_us();
        int wait_ms = now >= deadline ? 0 : (int)((deadline - now) / 1000 + 1);
        int k = poll(p, 3, wait_ms);
        if (k == 0 && clock_now_us() >= deadline) {
            kill(-pid, SIGKILL);
            rc = err_set(e, ERR_TIMEOUT, "%s did not end in time", name);
            break;
        }
        if (k < 0)
            continue; /* EINTR: the deadline still counts */
        if (p[0].revents && !drain(out, &r->out))
            p[0].fd = -1;
        if (p[1].revents && !drain(err, &r->err))
            p[1].fd = -1;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(child);
    drain(out, &r->out);
    drain(err, &r->err);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return rc;
}

int command_run(struct command_result *r, const struct command *c, struct err *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t pid;
    buf_init(&r->out, COMMAND_MAX_OUTPUT);
    buf_init(&r->err, COMMAND_MAX_OUTPUT);
    r->status = -1;
    uint64_t deadline = clock_now_us() + c->timeout_us;
    int rc = 0;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        rc = err_sys(e, errno, "cannot start %s", c->argv[0]);
    int bad = rc ? 0 : spawn(&pid, c, out[1], err[1]);
    if (bad == ENOENT)
        rc = err_set(e, ERR_SYS, "the command %s was not found in PATH", c->argv[0]);
    else if (bad)
        rc = err_sys(e, bad, "cannot start %s", c->argv[0]);
    close(out[1]);
    close(err[1]);
    if (!rc) {
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        rc = attend(r, pid, out[0], err[0], deadline, c->argv[0], e);
    }
    close(out[0]);
    close(err[0]);
    if (rc)
        command_result_fini(r);
    return rc;
}

void command_result_fini(struct command_result *r)
{
    buf_fini(&r->out);
    buf_fini(&r->err);
}

const char *command_complaint(struct command_result *r, char *out, size_t cap)
{
    snprintf(out, cap, "%s", buf_cstr(&r->err));
    size_t n = strlen(out);
    while (n && (out[n - 1] == '\n' || out[n - 1] == ' '))
        out[--n] = 0;
    for (char *p = out; *p; p++)
        if (*p == '\n')
            *p = ';';
        else if ((unsigned char)*p < ' ')
            *p = ' ';
    return out;
}
