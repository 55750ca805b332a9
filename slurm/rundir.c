/* rundir.c - see rundir.h. Whatever lies below the base folder is ours alone: a folder or file of somebody else, open to others, or a link
 * in its place is refused, because secret and key are read from there.
 */
#include "slurm/rundir.h"

#include "base/buf.h"
#include "base/digest.h"
#include "base/file.h"
#include "slurm/endpoint.h"
#include "slurm/job.h"
#include "slurm/owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SECRET_BYTES = 32,
    KEY_RANDOM_BYTES = 24, /* 48 hex digits after "sk-exa-" */
    MAX_CLUSTERS = 64,
    MAX_JOBS = 100000,   /* looked at under one cluster */
    MAX_CANDIDATES = 16, /* asked about, newest first */
    LINE_BYTES = 256,
};
static const char KEY_PREFIX[] = "sk-exa-";

/* One path component: no separators, no hidden names, nothing a shell or terminal would trip over. */
static bool is_component(const char *s)
{
    if (!*s || *s == '.' || strlen(s) > 63)
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-+", *s))
            return false;
    return true;
}

int rundir_base(char *out, size_t cap, struct err *e)
{
    const char *set = getenv("EXASERVE_RUN_DIR");
    if (set && *set) {
        if (*set != '/')
            return err_set(e, ERR_CONFIG, "EXASERVE_RUN_DIR must be an absolute path, and is %s",
                           set);
        return path_join(out, cap, e, "%s", set);
    }
    const char *home = getenv("HOME");
    if (!home || *home != '/') {
        const struct passwd *pw = getpwuid(geteuid());
        home = pw ? pw->pw_dir : NULL;
    }
    if (!home || *home != '/')
        return err_set(e, ERR_CONFIG, "no home folder: set HOME or EXASERVE_RUN_DIR");
    return path_join(out, cap, e, "%s/.exaserve", home);
}

int rundir_path(char *out, size_t cap, const char *cluster, const char *job, struct err *e)
{
    if (!is_component(cluster))
        return err_set(e, ERR_CONFIG, "not a cluster name: %.80s", cluster);
    if (!is_component(job))
        return err_set(e, ERR_CONFIG, "not a job id: %.80s", job);
    char base[RUNDIR_PATH_BYTES];
    int rc = rundir_base(base, sizeof base, e);
    return rc ? rc : path_join(out, cap, e, "%s/%s/%s", base, cluster, job);
}

/* Open a file of ours for reading: no link, regular, owned by us, closed to others. ERR_AGAIN: there is none. */
static int private_open(const char *path, int *fd, struct err *e)
{
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f < 0 && errno == ENOENT)
        return err_set(e, ERR_AGAIN, "%s is not there yet", path);
    if (f < 0 && errno == ELOOP)
        return err_set(e, ERR_CONFIG, "%s must be a file, and is a symbolic link", path);
    if (f < 0)
        return err_sys(e, errno, "cannot open %s", path);
    struct stat st;
    int rc = 0;
    if (fstat(f, &st) != 0)
        rc = err_sys(e, errno, "cannot look at %s", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_CONFIG, "%s must be a file", path);
    else if (st.st_uid != geteuid())
        rc = err_set(e, ERR_CONFIG, "%s must belong to user %u, and belongs to user %u", path,
                     (unsigned)geteuid(), (unsigned)st.st_uid);
    else if (st.st_mode & 077)
        rc = err_set(e, ERR_CONFIG, "%s must have mode 0600, and has %04o: others could read it",
                     path, (unsigned)st.st_mode & 07777);
    if (rc) {
        close(f);
        return rc;
    }
    *fd = f;
    return 0;
}

int private_read(const char *path, char *text, size_t cap, size_t *n, struct err *e)
{
    int fd;
    int rc = private_open(path, &fd, e);
    if (rc)
        return rc;
    size_t have = 0;
    for (;;) {
        ssize_t k = read(fd, text + have, cap - have);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            rc = err_sys(e, errno, "cannot read %s", path);
        if (k <= 0)
            break;
        have += (size_t)k;
        if (have == cap) {
            rc = err_set(e, ERR_FORMAT, "%s is larger than %zu bytes", path, cap - 1);
            break;
        }
    }
    close(fd);
    if (rc)
        return rc;
    text[have] = 0;
    *n = have;
    return 0;
}

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)s[i]))
            return false;
    return s[n] == 0;
}

/* The one line of a small file of ours; file: its path, for what is said of it. */
static int line_read(const char *dir, const char *name, char file[RUNDIR_PATH_BYTES],
                     char text[LINE_BYTES], struct err *e)
{
    size_t n;
    int rc = path_join(file, RUNDIR_PATH_BYTES, e, "%s/%s", dir, name);
    if (!rc)
        rc = private_read(file, text, LINE_BYTES, &n, e);
    if (!rc)
        text[strcspn(text, "\n")] = 0;
    return rc;
}

int rundir_secret(const char *path, uint8_t secret[SECRET_BYTES], struct err *e)
{
    char file[RUNDIR_PATH_BYTES], text[LINE_BYTES];
    int rc = line_read(path, "secret", file, text, e);
    if (rc)
        return rc;
    if (hex_decode(text, secret, SECRET_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "%s must hold %d hex digits", file, 2 * SECRET_BYTES);
    return 0;
}

int rundir_key(const char *path, char *key, size_t cap, struct err *e)
{
    char file[RUNDIR_PATH_BYTES], text[LINE_BYTES];
    size_t n, prefix = sizeof KEY_PREFIX - 1;
    int rc = line_read(path, "key", file, text, e);
    if (rc)
        return rc;
    n = strlen(text);
    if (n <= prefix || memcmp(text, KEY_PREFIX, prefix) != 0 || !is_hex(text + prefix, n - prefix))
        return err_set(e, ERR_FORMAT, "%s must hold a key that begins with %s", file, KEY_PREFIX);
    if (n >= cap)
        return err_set(e, ERR_LIMIT, "%s: key is longer than %zu bytes", file, cap - 1);
    memcpy(key, text, n + 1);
    return 0;
}

/* Write path/name unless it is there and well (a restart of the world keeps its secret and key). */
static int random_file(const char *path, const char *name, const char *prefix, size_t n,
                       struct err *e)
{
    char file[RUNDIR_PATH_BYTES], text[128];
    uint8_t raw[SECRET_BYTES];
    CHECK(n <= sizeof raw);
    int fd, rc = path_join(file, sizeof file, e, "%s/%s", path, name);
    if (rc)
        return rc;
    struct err why = ERR_INIT;
    rc = private_open(file, &fd, &why);
    if (rc == 0) {
        close(fd);
        return 0;
    }
    if (rc != ERR_AGAIN)
        return err_set(e, why.code, "%s", why.text);
    random_bytes(raw, n);
    size_t at = (size_t)snprintf(text, sizeof text, "%s", prefix);
    hex_encode(raw, n, text + at);
    strcat(text, "\n");
    /* by link, not by rename: of two that create it at once (submit and the job itself) both must end with the same one */
    char tmp[RUNDIR_PATH_BYTES];
    rc = path_join(tmp, sizeof tmp, e, "%s.new.%d", file, (int)getpid());
    if (!rc)
        rc = file_publish(tmp, text, strlen(text), 0600, e);
    if (!rc && link(tmp, file) != 0 && errno != EEXIST)
        rc = err_sys(e, errno, "cannot create %s", file);
    if (!rc || rc == ERR_SYS)
        unlink(tmp);
    explicit_bzero(raw, sizeof raw);
    explicit_bzero(text, sizeof text);
    return rc;
}

int rundir_create(const char *path, struct err *e)
{
    char base[RUNDIR_PATH_BYTES], dir[RUNDIR_PATH_BYTES];
    int rc = rundir_base(base, sizeof base, e);
    if (!rc)
        rc = path_join(dir, sizeof dir, e, "%s", path);
    size_t n = rc ? 0 : strlen(base);
    if (!rc && strncmp(dir, base, n) == 0 && dir[n] == '/') {
        rc = dir_make_private(base, e); /* and every folder between it and the run directory */
        for (char *slash = dir + n; !rc && (slash = strchr(slash + 1, '/'));) {
            *slash = 0;
            rc = dir_keep_private(dir, e);
            *slash = '/';
        }
    }
    if (!rc)
        rc = dir_keep_private(path, e);
    if (!rc)
        rc = random_file(path, "secret", "", SECRET_BYTES, e);
    if (!rc)
        rc = random_file(path, "key", KEY_PREFIX, KEY_RANDOM_BYTES, e);
    return rc;
}

struct candidate {
    char path[RUNDIR_PATH_BYTES];
    char job[64];
    bool local;
    bool over; /* the service said so itself */
    struct timespec when;
};
struct found { /* the newest ones, newest first; services that are not over before those that are */
    struct candidate at[MAX_CANDIDATES];
    int n;
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    if (a->over != b->over)
        return b->over;
    return a->when.tv_sec != b->when.tv_sec ? a->when.tv_sec > b->when.tv_sec
                                            : a->when.tv_nsec > b->when.tv_nsec;
}

static void keep(struct found *f, const struct candidate *c)
{
    int i = f->n;
    while (i > 0 && before(c, &f->at[i - 1]))
        i--;
    if (i == MAX_CANDIDATES)
        return;
    if (f->n < MAX_CANDIDATES)
        f->n++;
    memmove(&f->at[i + 1], &f->at[i], (size_t)(f->n - 1 - i) * sizeof f->at[0]);
    f->at[i] = *c;
}

/* When: the key is written at the start of the job, and never again. */
static void consider(struct found *f, const char *base, const char *cluster, const char *job)
{
    struct candidate c = {.local = strcmp(cluster, "local") == 0};
    char file[RUNDIR_PATH_BYTES + 8];
    struct stat st;
    if (!is_component(job) ||
        path_join(c.path, sizeof c.path, NULL, "%s/%s/%s", base, cluster, job) != 0)
        return;
    snprintf(file, sizeof file, "%s/key", c.path);
    if (lstat(c.path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        lstat(file, &st) != 0)
        return;
    struct endpoint *p = calloc(1, sizeof *p);
    c.over = p && endpoint_read(c.path, p, NULL) == 0 && endpoint_ended(p);
    free(p);
    c.when = st.st_mtim;
    snprintf(c.job, sizeof c.job, "%s", job);
    keep(f, &c);
}

static void search_cluster(struct found *f, const char *base, const char *cluster, const char *job)
{
    char dir[RUNDIR_PATH_BYTES];
    if (job) {
        consider(f, base, cluster, job);
        return;
    }
    if (path_join(dir, sizeof dir, NULL, "%s/%s", base, cluster) != 0)
        return;
    DIR *d = opendir(dir);
    struct dirent *entry;
    for (int i = 0; d && i < MAX_JOBS && (entry = readdir(d)); i++)
        consider(f, base, cluster, entry->d_name);
    if (d)
        closedir(d);
}

/* A service that was killed hard never said that it is over: ask who would know. */
static bool is_running(const struct candidate *c)
{
    struct job_state s;
    pid_t pid;
    if (c->over)
        return false;
    if (c->local)
        return owner_find(c->path, &pid, NULL) == 0;
    return job_query(c->job, &s, NULL) == 0 && !job_state_ended(s.state);
}

int rundir_find(const char *job, char *out, size_t cap, struct err *e)
{
    char base[RUNDIR_PATH_BYTES];
    int rc = rundir_base(base, sizeof base, e);
    if (rc)
        return rc;
    if (!job) {
        job = getenv("SLURM_JOB_ID");
        job = job && *job ? job : NULL;
    }
    if (job && !is_component(job))
        return err_set(e, ERR_CONFIG, "not a job id: %.80s", job);
    struct found *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_NOMEM, "out of memory");
    DIR *d = opendir(base);
    struct dirent *entry;
    for (int i = 0; d && i < MAX_CLUSTERS && (entry = readdir(d));)
        if (is_component(entry->d_name)) {
            search_cluster(f, base, entry->d_name, job);
            i++;
        }
    if (d)
        closedir(d);
    int best = 0;
    if (!job && f->n > 1) {
        while (best < f->n && !is_running(&f->at[best]))
            best++;
        if (best == f->n)
            best = 0;
    }
    if (f->n)
        rc = path_join(out, cap, e, "%s", f->at[best].path);
    else if (job)
        rc = err_set(e, ERR_CONFIG, "no job %s of yours under %s", job, base);
    else
        rc = err_set(e, ERR_CONFIG, "no job of yours under %s: start one with exaserve submit",
                     base);
    free(f);
    return rc;
}
