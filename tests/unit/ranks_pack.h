/* ranks_pack.h - what rank 0 reads of a pack, for tests: a model of one tensor, in one segment. */
#ifndef EXA_TESTS_RANKS_PACK_H
#define EXA_TESTS_RANKS_PACK_H

#include "model/index.h"
#include "model/meta.h"

#include <stdlib.h>
#include <string.h>

struct tiny_pack {
    struct buf index, meta; /* encoded */
    struct model_index x;
};

static inline void tiny_pack_make(struct tiny_pack *p)
{
    struct err e = ERR_INIT;
    struct tensor_info t = {.name = "t", .type = TENSOR_F32, .n_dims = 1, .dims = {64, 1, 1, 1}};
    struct model_meta m;
    meta_init(&m);
    strcpy(m.name, "tiny");
    m.params = (struct model_params){"llama", 1,     32,    64,  2, 1,    16,
                                     16,      10000, 1e-5f, 128, 2, true, .pooling = POOLING_NONE};
    strcpy(m.tok.model, "gpt2");
    strcpy(m.tok.pre, "smollm");
    m.tok.n_tokens = 2;
    m.tok.tokens = malloc(2 * sizeof(char *));
    m.tok.tokens[0] = strdup("a");
    m.tok.tokens[1] = strdup("b");
    m.tok.types = malloc(2);
    memset(m.tok.types, TOKEN_NORMAL, 2);
    m.tok.bos = m.tok.eos = m.tok.unk = m.tok.pad = -1;
    buf_init(&p->meta, META_MAX_BYTES);
    buf_init(&p->index, INDEX_MAX_BYTES);
    assert_int_equal(meta_encode(&m, &p->meta, &e), 0);
    meta_fini(&m);
    assert_int_equal(index_build(&p->x, &t, 1, &e), 0);
    sha256_of(p->meta.data, p->meta.len, p->x.meta_hash);
    assert_int_equal(index_seal(&p->x, &e), 0);
    assert_int_equal(index_encode(&p->x, &p->index, &e), 0);
}

static inline void tiny_pack_free(struct tiny_pack *p)
{
    index_fini(&p->x);
    buf_fini(&p->index);
    buf_fini(&p->meta);
}

#endif
