/* task.c - see task.h. */
#include "ranks/task.h"

#include <stdlib.h>

enum { TASK_BUF_MAX_BYTES = 256 << 20 }; /* index, meta and offsets of the largest model */

struct task *task_create(enum task_kind kind)
{
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->kind = kind;
    buf_init(&t->a, TASK_BUF_MAX_BYTES);
    buf_init(&t->b, TASK_BUF_MAX_BYTES);
    buf_init(&t->c, TASK_BUF_MAX_BYTES);
    return t;
}

void task_destroy(struct task *t)
{
    if (!t)
        return;
    buf_fini(&t->a);
    buf_fini(&t->b);
    buf_fini(&t->c);
    free(t);
}
