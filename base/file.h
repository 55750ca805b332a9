/* file.h - small files and private folders: whole-file read, publish by rename, ownership checks.
 *
 * These block: never called on a loop thread.
 */
#ifndef EXA_BASE_FILE_H
#define EXA_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Append the whole file to b (b's cap bounds it: ERR_LIMIT). */
int file_read(const char *path, struct buf *b, struct err *e);
/* Write path.tmp.<pid>.<random>, fsync, rename onto path, fsync the folder. mode such as 0600. */
int file_publish(const char *path, const void *data, size_t n, mode_t mode, struct err *e);
/* Create the folder and its missing parents (mode 0700 each). Existing is fine. */
int dir_make(const char *path, struct err *e);
/* As dir_make, then refuse unless path itself is a folder (no link), owned by us, mode 0700 (an empty one is tightened; one with
 * something in it is refused, for it may be meant for others). */
int dir_make_private(const char *path, struct err *e);
/* The same for a folder whose name is ours alone, such as a job's: tightened whatever is in it. */
int dir_keep_private(const char *path, struct err *e);
/* Remove a tree below and including path; missing is fine. Does not follow links. */
int dir_remove(const char *path, struct err *e);
/* Parent folder of the running executable's folder, e.g. /opt/exaserve for /opt/exaserve/bin/exaserve. */
int file_self_dir(char *out, size_t cap, struct err *e);
/* snprintf that fails (ERR_LIMIT, naming the path) instead of cutting. */
int path_join(char *out, size_t cap, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
