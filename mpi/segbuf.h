/* segbuf.h - one segment on its way through a node: its bytes with a trailer, and how far it has
 * come.
 *
 * The trailer travels behind the bytes in the same broadcast: whether the reader could read the
 * segment, and if not, why. So all participants learn of a failed read without a message of its
 * own, and end the round with the same verdict.
 */
#ifndef EXA_MPI_SEGBUF_H
#define EXA_MPI_SEGBUF_H

#include "base/err.h"
#include "model/index.h"
#include "mpi/leg.h"

#include <stdbool.h>

enum { TRAILER_BYTES = 512, TRAILER_TEXT_BYTES = TRAILER_BYTES - 16 };

/* READ_FAILED: this segment is missing. READ_GAVE_UP: so are all that this reader would have
 * read later. */
enum read_state { READ_OK = 0, READ_FAILED = 1, READ_GAVE_UP = 2 };
struct trailer {
    uint32_t segment;
    enum read_state state;
    int code; /* enum err_code, 0 when READ_OK */
    char text[TRAILER_TEXT_BYTES];
};

enum buf_state { BUF_FREE, BUF_READING, BUF_READ, BUF_MOVING, BUF_LOST };
struct segbuf {
    uint8_t *data; /* owned [SEGMENT_BYTES + TRAILER_BYTES] */
    enum buf_state state;
    uint32_t k;       /* place in the round's order */
    uint32_t segment; /* number in the index */
    struct segment at;
    uint64_t file_offset;
    uint8_t hash[SHA256_BYTES];
    char tensor[TENSOR_NAME_BYTES];
    /* moving */
    struct leg lead, rack; /* among the leaders, and in the rack */
    bool storing;          /* the sink lane has it */
    /* written by the helper threads */
    uint64_t us, n_read;
    int store_code;
    struct err store_err;
};

struct segbuf *segbuf_create(void); /* NULL: out of memory */
void segbuf_free(void *b);
void trailer_put(struct segbuf *b, const struct trailer *t);
/* ERR_PROTO: not the trailer of this segment. */
int trailer_get(const struct segbuf *b, struct trailer *t, struct err *e);

#endif
