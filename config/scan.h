/* scan.h - a YAML text as a flat list of paths with their lines, before anything is made of it.
 *
 * libcyaml loads values, but its messages carry the line of the last good key. This list carries the line of every key, keeps
 * the text as it was written (so that `exclusive: flase` can be told from false), and is where hostile YAML ends: size, depth and
 * number of entries are limited; aliases, anchors, tags, doubled keys, keys that are not words and second documents are refused.
 */
#ifndef EXA_CONFIG_SCAN_H
#define EXA_CONFIG_SCAN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCAN_MAX_BYTES = 1 << 20,
    SCAN_MAX_DEPTH = 8,
    SCAN_MAX_ENTRIES = 4096,
    SCAN_MAX_KEY = 64,
    SCAN_PATH_BYTES = 160,
};

enum scan_kind { SCAN_SCALAR, SCAN_SEQUENCE, SCAN_MAPPING };

struct scan_entry {
    char path[SCAN_PATH_BYTES];    /* "models[0].name"; "" is the root */
    char pattern[SCAN_PATH_BYTES]; /* "models[].name" */
    unsigned line;                 /* of the key, or of the list item */
    enum scan_kind kind;
    char *value; /* scalar text, owned; NULL else */
    bool plain;  /* not quoted: may mean a number, true or nothing */
    unsigned n_children;
};

struct scan {
    struct scan_entry *entries; /* owned, in the order of the text; [0] is the root */
    size_t n, cap;
};

/* ERR_CONFIG "FILE:LINE: …". On failure nothing is kept. */
int scan_yaml(struct scan *s, const char *text, size_t n, const char *file, struct err *e);
void scan_fini(struct scan *s);
const struct scan_entry *scan_find(const struct scan *s, const char *path);

#endif
