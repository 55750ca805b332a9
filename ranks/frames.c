/* frames.c - see frames.h. */
#include "ranks/frames.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum { FRAME_MAX_BYTES = 16 << 20 /* of one flush to one router */ };

struct frames {
    struct daemon *d;
    uint32_t first, end; /* routers are neighbours in the layout */
    struct buf *of;      /* owned [end - first] */
};

int frames_create(struct frames **out, struct daemon *d, struct err *e)
{
    struct frames *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_NOMEM, "no memory for step frames");
    f->d = d;
    while (f->first < d->n_ranks && d->members[f->first].role != ROLE_ROUTER)
        f->first++;
    f->end = f->first;
    while (f->end < d->n_ranks && d->members[f->end].role == ROLE_ROUTER)
        f->end++;
    f->of = calloc(f->end - f->first + 1, sizeof *f->of);
    if (!f->of) {
        free(f);
        return err_set(e, ERR_NOMEM, "no memory for step frames");
    }
    for (uint32_t i = 0; i < f->end - f->first; i++)
        buf_init(&f->of[i], FRAME_MAX_BYTES);
    *out = f;
    return 0;
}

/* NULL: no router that could be told. */
static struct buf *frame_of(struct frames *f, uint32_t router)
{
    return router >= f->first && router < f->end && f->d->members[router].up
               ? &f->of[router - f->first]
               : NULL;
}

static void steps_of(struct frames *f, uint32_t router, const struct frame_source *from,
                     const uint8_t *body, size_t n)
{
    struct buf *to = frame_of(f, router);
    struct rd rd = rd_make(body, n);
    struct step_section s;
    uint32_t n_entries = 0;
    size_t at = to ? to->len : 0;
    if (!to || msg_section_get(&rd, &s, NULL))
        return;
    uint32_t n_all = s.n_entries;
    s.deployment = from->deployment;
    s.replica = from->replica;
    s.epoch = from->epoch;
    for (uint32_t i = 0; i < n_all; i++) {
        struct step_entry entry;
        if (msg_entry_get(&rd, &entry, NULL))
            break;
        if (entry.attempt.router != router)
            continue;
        if (!n_entries++)
            msg_section_put(to, &s);
        msg_entry_put(to, &entry);
    }
    if (n_entries && buf_ok(to))
        msg_section_patch(to, at, n_entries);
}

void frames_steps(struct frames *f, const struct frame_source *from, const uint8_t *body, size_t n)
{
    for (uint32_t m = f->first; m < f->end; m++)
        steps_of(f, m, from, body, n);
}

void frames_refuse(struct frames *f, const struct frame_source *from, const struct attempt *a,
                   uint32_t position, uint8_t finish, int code, const char *text)
{
    struct buf *to = frame_of(f, a->router);
    if (!to)
        return;
    struct step_section s = {from->deployment, from->replica, from->epoch, 0, 0};
    struct msg_text t = {.code = code};
    snprintf(t.text, sizeof t.text, "%s", text);
    struct buf ext;
    buf_init(&ext, sizeof t + 64);
    msg_text_put(&ext, &t);
    struct step_entry entry = {.attempt = *a,
                               .position = position,
                               .finish = finish,
                               .ext_type = EXT_ERROR,
                               .ext = ext.data,
                               .ext_bytes = (uint32_t)ext.len};
    size_t at = to->len;
    msg_section_put(to, &s);
    msg_entry_put(to, &entry);
    if (buf_ok(to))
        msg_section_patch(to, at, 1);
    buf_fini(&ext);
}

void frames_flush(struct frames *f)
{
    for (uint32_t m = f->first; m < f->end; m++) {
        struct buf *b = &f->of[m - f->first];
        if (buf_ok(b) && !b->len)
            continue;
        if (f->d->members[m].up)
            daemon_send(f->d, m, MSG_STEPS, b); /* says so when it outgrew its bound */
        buf_reset(b);
    }
}
