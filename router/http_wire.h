/* http_wire.h - response heads as bytes. Pure, but for the Date line. */
#ifndef EXA_ROUTER_HTTP_WIRE_H
#define EXA_ROUTER_HTTP_WIRE_H

#include "base/buf.h"

/* Status line, Date, Connection, and extra header lines (each ended by CR LF; NULL: none). */
void http_put_head(struct buf *b, int status, bool keep_alive, const char *extra);
/* The last header lines and the empty line: of a body of known length, or of an event stream. */
void http_put_length(struct buf *b, const char *content_type, size_t n);
void http_put_stream(struct buf *b, bool chunked);
const char *http_status_text(int status);

#endif
