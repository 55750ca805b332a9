/* schema.h - the libcyaml schema of struct config, made from the option table. */
#ifndef EXA_CONFIG_SCHEMA_H
#define EXA_CONFIG_SCHEMA_H

#include "config/config.h"

#include <cyaml/cyaml.h>

enum { SCHEMA_GROUPS = 8, SCHEMA_KEYS = 32, SCHEMA_WORDS = 32, SCHEMA_MAX_TEXT = 65536 };

struct schema {
    cyaml_schema_value_t top, model, text;
    cyaml_schema_field_t fields[SCHEMA_GROUPS][SCHEMA_KEYS + 1];
    cyaml_strval_t words[SCHEMA_WORDS];
    unsigned n_groups, n_words;
};

/* Points into itself: not to be copied. */
void schema_make(struct schema *s);

#endif
