/* token_set.h - the different tokens of one request, in prompt and answer, with how often the answer has each: what penalties go by.
 *
 * Its memory is handed in and bounded by the number of tokens a request may have. Pure.
 */
#ifndef EXA_ENGINE_TOKEN_SET_H
#define EXA_ENGINE_TOKEN_SET_H

#include <stddef.h>
#include <stdint.h>

struct token_seen {
    uint32_t id;
    uint32_t n_answer; /* 0: in the prompt only */
};
struct token_set {
    uint32_t n, max, n_index; /* n_index: a power of two, at least 2 * max */
    struct token_seen *seen;  /* [max] in order of appearance */
    uint32_t *index;          /* [n_index] hash table: place in seen + 1; 0: free */
};

size_t token_set_bytes(uint32_t max_tokens);
/* memory: token_set_bytes(max_tokens), aligned for uint32_t, zeroed. */
void token_set_init(struct token_set *t, uint32_t max_tokens, void *memory);
void token_set_clear(struct token_set *t);
/* No more different ones than max_tokens: the caller sees to it. */
void token_set_add(struct token_set *t, uint32_t id, uint32_t n_answer);

#endif
