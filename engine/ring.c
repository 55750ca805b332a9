/* ring.c - see ring.h: one direction, memory shared with a process that is not trusted.
 *
 * Layout of the memfd: a page with the header, then RING_BYTES of data. head and tail are running byte counts, never wrapped; a
 * record is u32 length, then the bytes, padded to RECORD_ALIGN, and may wrap round the end of the data. Each side keeps its own
 * count in private memory and only publishes it: what the other side scribbles into the header cannot move us.
 */
#include "engine/ring_half.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RECORD_ALIGN = 8,
    RECORD_HEAD = 4,
    HEADER_BYTES = 4096,
    RING_VERSION = 1,
};
static const char MAGIC[8] = "EXARING";

struct ring_header {
    char magic[8];
    uint32_t version, data_bytes;
    _Alignas(64) _Atomic uint64_t head; /* written by the producer: bytes put in */
    _Alignas(64) _Atomic uint64_t tail; /* written by the consumer: bytes taken out */
};
_Static_assert(sizeof(struct ring_header) <= HEADER_BYTES, "one page");
_Static_assert(RING_BYTES % RECORD_ALIGN == 0, "records stay aligned over the wrap");
_Static_assert(RING_MAX_RECORD + 2 * RECORD_ALIGN < RING_BYTES, "the largest record fits");

int ring_memfd(const char *name, size_t n_bytes, struct err *e)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(e, errno, "%s: memfd of %zu bytes", name, n_bytes);
    /* sealed: a peer that shrank it would kill us with SIGBUS */
    if (ftruncate(fd, (off_t)n_bytes) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int errnum = errno;
        close(fd);
        return err_sys(e, errnum, "%s: sizing a memfd to %zu bytes", name, n_bytes);
    }
    return fd;
}

void *ring_map(int fd, size_t n_bytes, const char *name, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st)) {
        err_sys(e, errno, "%s: descriptor %d", name, fd);
        return NULL;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (st.st_size != (off_t)n_bytes || seals < 0 || !(seals & F_SEAL_SHRINK)) {
        err_set(e, ERR_PROTO,
                "%s: descriptor %d is no memfd of %zu bytes, sealed against shrinking", name, fd,
                n_bytes);
        return NULL;
    }
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        err_sys(e, errno, "%s: mapping %zu bytes", name, n_bytes);
        return NULL;
    }
    return p;
}

int ring_create(struct ring *r, const char *name, int *fd, struct err *e)
{
    int new_fd = ring_memfd(name, HEADER_BYTES + RING_BYTES, e);
    if (new_fd < 0)
        return new_fd;
    void *map = ring_map(new_fd, HEADER_BYTES + RING_BYTES, name, e);
    if (!map) {
        close(new_fd);
        return ERR_SYS;
    }
    *r = (struct ring){.name = name, .header = map, .data = (uint8_t *)map + HEADER_BYTES};
    memcpy(r->header->magic, MAGIC, sizeof MAGIC);
    r->header->version = RING_VERSION;
    r->header->data_bytes = RING_BYTES;
    *fd = new_fd;
    return 0;
}

int ring_attach(struct ring *r, const char *name, int fd, bool to_read, struct err *e)
{
    void *map = ring_map(fd, HEADER_BYTES + RING_BYTES, name, e);
    if (!map)
        return e && e->code ? e->code : ERR_SYS;
    struct ring_header *h = map;
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->version != RING_VERSION ||
        h->data_bytes != RING_BYTES) {
        munmap(map, HEADER_BYTES + RING_BYTES);
        return err_set(e, ERR_PROTO, "%s: descriptor %d holds no ring of version %d", name, fd,
                       RING_VERSION);
    }
    *r = (struct ring){.name = name, .header = h, .data = (uint8_t *)map + HEADER_BYTES};
    /* the worker may have sent commands before we came; our own side must be untouched */
    if (atomic_load(&h->tail) || (!to_read && atomic_load(&h->head))) {
        ring_unmap(r);
        return err_set(e, ERR_PROTO, "%s: the ring was attached before", name);
    }
    return 0;
}

void ring_unmap(struct ring *r)
{
    if (r->header)
        munmap(r->header, HEADER_BYTES + RING_BYTES);
    *r = (struct ring){.name = r->name};
}

/* Copy in or out at a running count, over the wrap. */
static void copy_in(struct ring *r, uint64_t at, const void *from, size_t n)
{
    size_t pos = at % RING_BYTES, first = RING_BYTES - pos < n ? RING_BYTES - pos : n;
    if (n == 0)
        return;
    memcpy(r->data + pos, from, first);
    memcpy(r->data, (const uint8_t *)from + first, n - first);
}

static void copy_out(const struct ring *r, uint64_t at, void *to, size_t n)
{
    size_t pos = at % RING_BYTES, first = RING_BYTES - pos < n ? RING_BYTES - pos : n;
    if (n == 0)
        return;
    memcpy(to, r->data + pos, first);
    memcpy((uint8_t *)to + first, r->data, n - first);
}

static size_t record_bytes(size_t n)
{
    return (RECORD_HEAD + n + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

static int scribbled(const struct ring *r, const char *what, uint64_t found, struct err *e)
{
    return err_set(e, ERR_PROTO, "%s: the ring's %s is nonsense: %" PRIu64 ", own count %" PRIu64,
                   r->name, what, found, r->count);
}

int ring_write(struct ring *r, uint16_t type, const void *body, size_t n, struct err *e)
{
    if (n > RING_MAX_RECORD - sizeof type)
        return err_set(e, ERR_LIMIT, "%s: record of %zu bytes, at most %zu", r->name, n,
                       RING_MAX_RECORD - sizeof type);
    uint64_t tail = atomic_load_explicit(&r->header->tail, memory_order_acquire);
    if (r->count - tail > RING_BYTES || tail % RECORD_ALIGN)
        return scribbled(r, "tail", tail, e);
    size_t payload = sizeof type + n, need = record_bytes(payload);
    if (RING_BYTES - (r->count - tail) < need)
        return err_set(e, ERR_AGAIN, "%s: full, %" PRIu64 " bytes wait to be read", r->name,
                       r->count - tail);
    uint8_t head[RECORD_HEAD + sizeof type] = {
        (uint8_t)payload,         (uint8_t)(payload >> 8), (uint8_t)(payload >> 16),
        (uint8_t)(payload >> 24), (uint8_t)type,           (uint8_t)(type >> 8),
    };
    copy_in(r, r->count, head, sizeof head);
    copy_in(r, r->count + sizeof head, body, n);
    r->count += need;
    atomic_store_explicit(&r->header->head, r->count, memory_order_release);
    return 0;
}

int ring_read(struct ring *r, uint16_t *type, struct buf *b, struct err *e)
{
    uint64_t head = atomic_load_explicit(&r->header->head, memory_order_acquire);
    uint64_t there = head - r->count;
    if (!there)
        return 0;
    if (there > RING_BYTES || there % RECORD_ALIGN)
        return scribbled(r, "head", head, e);
    uint8_t raw[RECORD_HEAD + sizeof *type];
    copy_out(r, r->count, raw, sizeof raw);
    uint32_t payload = u32_at_ring(raw);
    if (payload < sizeof *type || payload > RING_MAX_RECORD || record_bytes(payload) > there)
        return scribbled(r, "record length", payload, e);
    size_t n = payload - sizeof *type;
    buf_reset(b);
    uint8_t *to = buf_reserve(b, n + 1); /* one more: an empty record is no reason to fail */
    if (!to)
        return err_set(e, ERR_NOMEM, "%s: no room for a record of %zu bytes", r->name, n);
    copy_out(r, r->count + sizeof raw, to, n);
    b->len = n;
    *type = (uint16_t)(raw[RECORD_HEAD] | raw[RECORD_HEAD + 1] << 8);
    r->count += record_bytes(payload);
    atomic_store_explicit(&r->header->tail, r->count, memory_order_release);
    return 1;
}

bool ring_is_empty(const struct ring *r)
{
    return atomic_load_explicit(&r->header->head, memory_order_acquire) == r->count;
}
