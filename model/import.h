/* import.h - a model in a form that others make, ready to be packed: a GGUF file or a Hugging Face folder. */
#ifndef EXA_MODEL_IMPORT_H
#define EXA_MODEL_IMPORT_H

#include "model/gguf.h"
#include "model/hf_model.h"
#include "model/source.h"

struct import {
    const char *kind;        /* "GGUF", "Hugging Face" */
    struct model_meta *meta; /* these two point into what follows */
    struct model_index *index;
    struct tensor_source source;
    struct gguf gguf;
    struct hf_model hf;
    bool is_hf;
};

/* A folder, or a file that is neither GGUF nor anything else known: told from what it is. m does not move while it is open. */
int import_open(struct import *m, const char *path, struct err *e);
void import_close(struct import *m);

#endif
