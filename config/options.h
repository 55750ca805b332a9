/* options.h - the one table of all keys of serve.yaml: it feeds the libcyaml schema, defaults, checks, hints and docs/configuration.md.
 */
#ifndef EXA_CONFIG_OPTIONS_H
#define EXA_CONFIG_OPTIONS_H

#include "base/buf.h"
#include "config/config.h"

#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_STRING,
    OPTION_UINT,  /* min … max; size 4 or 8 */
    OPTION_COUNT, /* as OPTION_UINT, or the word in `words` (stored as 0) */
    OPTION_BOOL,
    OPTION_CHOICE, /* one of `words`, stored as int */
    OPTION_LIST,   /* list of strings */
    OPTION_MODELS, /* list of mappings */
    OPTION_GROUP,  /* mapping of further keys */
};

/* Returns NULL, or what the value must be ("a Slurm time such as 1:00:00"). */
typedef const char *(*option_check_fn)(const char *value);

struct option {
    const char *path; /* as struct scan_entry.pattern: "limits.body_bytes", "models[].pack" */
    enum option_type type;
    size_t offset; /* in struct config, or in struct config_model for "models[]." */
    size_t size;
    size_t count_offset; /* of lists: where their `unsigned` count is */
    bool required;
    uint64_t min, max;        /* numbers: range; strings: length in bytes; lists: entries */
    uint64_t preset;          /* default of numbers, booleans and choices */
    const char *preset_text;  /* default of strings, NULL: unset */
    const char *unit;         /* "s", "ms", "bytes"; NULL */
    const char *const *words; /* NULL-terminated */
    option_check_fn check;
    const char *help; /* one sentence for docs/configuration.md */
};

/* All options, ended by path NULL; a group stands before its keys. */
const struct option *option_table(void);
const struct option *option_find(const char *pattern);
/* The last word of the path: the key itself. */
const char *option_key(const struct option *o);
/* true: o stands directly in the group ("" for the root, "models[]" for a model). */
bool option_in_group(const struct option *o, const char *group);
/* docs/configuration.md. */
void option_describe(struct buf *out);

#endif
