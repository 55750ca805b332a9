/* run_world.c - see run_world.h.
 *
 * mpirun answers SIGTERM by killing its ranks at once, so a drain is asked of the ranks themselves, which are its children. This process is
 * a subreaper: whatever loses its parent becomes our child, and can be ended. If we are killed ourselves, mpirun gets SIGTERM.
 */
#include "cli/run_world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/paths.h"
#include "slurm/command.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PLAN_TIMEOUT_US = 60 * 1000 * 1000,
    TERM_WAIT_US = 5 * 1000 * 1000, /* mpirun's own clean-up takes one to two seconds */
    KILL_WAIT_US = 5 * 1000 * 1000,
    STEP_US = 50 * 1000,
    MAX_CHILDREN = 512,
};

/* exaserved lies beside this program. */
static int daemon_path(char *out, size_t cap, struct err *e)
{
    char self[PATH_MAX];
    int rc = file_self_dir(self, sizeof self, e);
    if (!rc)
        rc = path_join(out, cap, e, "%s/bin/exaserved", self);
    if (!rc && access(out, X_OK) != 0)
        rc = err_sys(e, errno, "cannot run %s", out);
    return rc;
}

static bool in_path(const char *program)
{
    char file[PATH_MAX];
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin", *end; *p; p = *end ? end + 1 : end) {
        end = p + strcspn(p, ":");
        if (!path_join(file, sizeof file, NULL, "%.*s/%s", (int)(end - p), p, program) &&
            access(file, X_OK) == 0)
            return true;
    }
    return false;
}

int world_check(struct err *e)
{
    char exe[PATH_MAX];
    int rc = daemon_path(exe, sizeof exe, e);
    if (!rc && !in_path("mpirun"))
        rc = err_set(e, ERR_SYS, "cannot run mpirun: it is not in PATH; install or load Open MPI");
    return rc;
}

static int nodes_write(const char *path, struct err *e)
{
    char host[256], line[300];
    int rc = path_host_name(host, sizeof host, e);
    if (rc)
        return rc;
    int n = snprintf(line, sizeof line, "%s - -\n", host);
    return file_publish(path, line, (size_t)n, 0600, e);
}

static int ranks_read(struct command_result *r, uint32_t *n_ranks, struct err *e)
{
    char why[400];
    if (r->status != 0)
        return err_set(e, r->status == 4 ? ERR_CONFIG : ERR_SYS, "exaserved --plan failed: %s",
                       command_complaint(r, why, sizeof why));
    const char *text = buf_cstr(&r->out);
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || (*end && *end != '\n') || n == 0 || n > 4096)
        return err_set(e, ERR_PROTO, "exaserved --plan must print the number of ranks");
    *n_ranks = (uint32_t)n;
    return 0;
}

int world_plan(const char *run_dir, uint32_t attempt, uint32_t *n_ranks, struct err *e)
{
    char number[16], exe[PATH_MAX], nodes[PATH_MAX], yaml[PATH_MAX];
    int rc = daemon_path(exe, sizeof exe, e);
    if (!rc)
        rc = path_join(nodes, sizeof nodes, e, "%s/nodes", run_dir);
    if (!rc)
        rc = path_join(yaml, sizeof yaml, e, "%s/serve.yaml", run_dir);
    if (!rc)
        rc = nodes_write(nodes, e);
    if (rc)
        return rc;
    snprintf(number, sizeof number, "%u", attempt);
    const char *const argv[] = {exe,         "--plan", "--config",     yaml,  "--run-dir", run_dir,
                                "--attempt", number,   "--nodes-file", nodes, NULL};
    const struct command c = {.argv = argv, .timeout_us = PLAN_TIMEOUT_US};
    struct command_result r;
    rc = command_run(&r, &c, e);
    if (rc)
        return rc;
    rc = ranks_read(&r, n_ranks, e);
    command_result_fini(&r);
    return rc;
}

static void set_default(const char *name, const char *value)
{
    setenv(name, value, 0); /* the user's own setting wins */
}

/* In the child: does not return. */
static _Noreturn void mpirun_exec(pid_t parent, const char *exe, const char *run_dir, int log,
                                  uint32_t attempt, uint32_t n_ranks)
{
    char n[16], number[16];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* a terminal's Ctrl-C goes to us alone */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    int in = open("/dev/null", O_RDONLY);
    dup2(in, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    /* One machine, also inside a Slurm job: mpirun must neither ask Slurm for nodes nor start anything elsewhere. */
    const char *tmp = getenv("TMPDIR");
    if (tmp && !*tmp)
        unsetenv("TMPDIR"); /* Open MPI would take it for the root folder */
    set_default("OMPI_MCA_plm", "isolated");
    set_default("OMPI_MCA_ras", "^slurm,tm,lsf,gridengine");
    snprintf(n, sizeof n, "%u", n_ranks);
    snprintf(number, sizeof number, "%u", attempt);
    execlp("mpirun", "mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-n", n,
           exe, "--world", "--run-dir", run_dir, "--attempt", number, (char *)NULL);
    dprintf(STDERR_FILENO, "cannot run mpirun: %s\n", strerror(errno));
    _exit(127);
}

static void end_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD); /* wakes world_signal */
}

void world_block_signals(void)
{
    sigset_t set;
    end_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int world_start(struct world *w, const char *run_dir, uint32_t attempt, uint32_t n_ranks,
                struct err *e)
{
    char exe[PATH_MAX], path[PATH_MAX];
    memset(w, 0, sizeof *w);
    int rc = daemon_path(exe, sizeof exe, e);
    if (!rc)
        rc = path_join(path, sizeof path, e, "%s/world.log", run_dir);
    if (rc)
        return rc;
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0)
        return err_sys(e, errno, "cannot create %s", path);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        mpirun_exec(parent, exe, run_dir, log, attempt, n_ranks);
    close(log);
    if (pid < 0)
        return err_sys(e, errno, "cannot start mpirun");
    w->mpirun = pid;
    return 0;
}

bool world_running(struct world *w)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == w->mpirun) {
            w->mpirun = 0;
            w->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    return w->mpirun != 0;
}

int world_signal(struct world *w, uint64_t timeout_us)
{
    uint64_t deadline = clock_now_us() + timeout_us;
    sigset_t set;
    end_signals(&set);
    for (;;) {
        uint64_t now = clock_now_us();
        uint64_t left = now < deadline ? deadline - now : 0;
        struct timespec ts = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
        int sig = sigtimedwait(&set, NULL, &ts);
        if (sig > 0 && sig != SIGCHLD)
            return sig;
        if (sig < 0 && errno == EAGAIN)
            return 0;
        if (sig == SIGCHLD && !world_running(w))
            return 0;
    }
}

/* Parent of a process, and whether it still runs; 0 when it is gone or a zombie. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *p = strrchr(text, ')'); /* the name before it may hold anything */
    char state;
    int ppid;
    return p && sscanf(p + 1, " %c %d", &state, &ppid) == 2 && state != 'Z' ? (pid_t)ppid : 0;
}

/* Children of pid into out[max]; how many. */
static size_t children_of(pid_t pid, pid_t *out, size_t max)
{
    size_t n = 0;
    DIR *d = opendir("/proc");
    struct dirent *entry;
    while (d && n < max && (entry = readdir(d))) {
        pid_t child = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)atoi(entry->d_name) : 0;
        if (child > 1 && parent_of(child) == pid)
            out[n++] = child;
    }
    if (d)
        closedir(d);
    return n;
}

static size_t signal_children(pid_t pid, int sig)
{
    pid_t child[MAX_CHILDREN];
    size_t n = children_of(pid, child, MAX_CHILDREN);
    for (size_t i = 0; i < n; i++)
        kill(child[i], sig);
    return n;
}

void world_drain(struct world *w)
{
    if (w->mpirun)
        signal_children(w->mpirun, SIGTERM);
}

void world_kill(struct world *w)
{
    uint64_t deadline = clock_now_us() + TERM_WAIT_US;
    if (world_running(w))
        kill(w->mpirun, SIGTERM);
    while (world_running(w) && clock_now_us() < deadline)
        clock_sleep_us(STEP_US);
    if (world_running(w)) {
        signal_children(w->mpirun, SIGKILL); /* else they would go on without it */
        kill(w->mpirun, SIGKILL);
    }
    /* What lost its parent is our child now; its own children follow in the next round. */
    deadline = clock_now_us() + KILL_WAIT_US;
    while ((world_running(w) || signal_children(getpid(), SIGKILL) > 0) &&
           clock_now_us() < deadline)
        clock_sleep_us(STEP_US);
}
