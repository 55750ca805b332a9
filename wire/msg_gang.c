/* msg_gang.c - see msg.h: what the shards of one replica, and their workers, say to each other. */
#include "wire/msg.h"

#include "wire/msg_read.h"

_Static_assert(GANG_START == 1 && GANG_HERE == 3, "frozen by PROTOCOL.md");

static void name_put(struct buf *b, const struct shard_name *n)
{
    buf_u32(b, n->deployment);
    buf_u32(b, n->replica);
    buf_u64(b, n->epoch);
    buf_u64(b, n->gang);
}

static void name_get(struct msg_rd *r, struct shard_name *n)
{
    n->deployment = msg_rd_u32(r, "deployment");
    n->replica = msg_rd_u32(r, "replica");
    n->epoch = msg_rd_u64(r, "epoch");
    n->gang = msg_rd_u64(r, "gang");
}

void msg_shard_put(struct buf *b, const struct msg_shard *m)
{
    name_put(b, &m->name);
    buf_u32(b, m->from);
    buf_u32(b, m->to);
    buf_u64(b, m->at);
    msg_put_array(b, m->bytes, m->n_bytes, MSG_MAX_SHARD_BYTES, 1);
}

int msg_shard_get(struct msg_shard *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("SHARD", rd_make(p, n));
    name_get(&r, &m->name);
    m->from = msg_rd_u32(&r, "from");
    m->to = msg_rd_u32(&r, "to");
    m->at = msg_rd_u64(&r, "at");
    m->bytes = msg_rd_array(&r, &m->n_bytes, MSG_MAX_SHARD_BYTES, 1, "bytes");
    return msg_rd_end(&r, e);
}

void msg_gang_put(struct buf *b, const struct msg_gang *m)
{
    name_put(b, &m->name);
    buf_u8(b, m->word);
    buf_u32(b, m->shard);
    msg_put_str(b, m->text, sizeof m->text);
}

int msg_gang_get(struct msg_gang *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("GANG", rd_make(p, n));
    name_get(&r, &m->name);
    m->word = msg_rd_enum(&r, GANG_START, GANG_HERE, "word");
    m->shard = msg_rd_u32(&r, "shard");
    msg_rd_str(&r, m->text, sizeof m->text, "text");
    return msg_rd_end(&r, e);
}
