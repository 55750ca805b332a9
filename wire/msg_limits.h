/* msg_limits.h - inside wire/ only: bounds of counts that msg.h leaves to the codec. A count over its bound is refused by
 * `get` and fails the buffer in `put`; the bounds are far above real use and keep sums far from overflow. */
#ifndef EXA_WIRE_MSG_LIMITS_H
#define EXA_WIRE_MSG_LIMITS_H

enum {
    MAX_DIGESTS = 4096,        /* images in one node's cache */
    MAX_ADDRESS_BYTES = 65535, /* plane.h: under 64 KiB */
    MAX_URL_BYTES = 1024,
    MAX_INDEX_BYTES = 64 << 20, /* a pack's index; 1 TB of segments of 8 MiB takes 5 MB */
    MAX_META_BYTES = 64 << 20,  /* tokenizer, template, configuration */
    MAX_SEGMENTS = 1 << 20,     /* 8 TiB of 8 MiB segments */
    MAX_TENSORS = 1 << 16,
    MAX_EXT_BYTES =
        1 << 17, /* an embedding of 32,767 numbers; 512 log-probabilities with 20 others each */
};

#endif
