/* hostlist.h - host lists as Slurm writes them: "n[001-003,7],login2" and back to names.
 *
 * A name may hold several brackets ("r[1-2]n[01-16]"). Numbers keep the width of the range's start. Order and duplicates are kept.
 */
#ifndef EXA_BASE_HOSTLIST_H
#define EXA_BASE_HOSTLIST_H

#include "base/buf.h"
#include "base/err.h"

enum { HOSTLIST_MAX_HOSTS = 65536, HOSTLIST_NAME_BYTES = 256 };

struct hostlist {
    size_t n;
    char **names; /* [n] owned */
};

/* ERR_FORMAT: not a host list. ERR_LIMIT: more than max_hosts names, or a name too long. On failure *out is empty. */
int hostlist_expand(struct hostlist *out, const char *text, size_t max_hosts, struct err *e);
void hostlist_fini(struct hostlist *h);
/* Append the short form, which expands to the same names in the same order. */
int hostlist_compress(struct buf *out, const char *const *names, size_t n, struct err *e);

#endif
