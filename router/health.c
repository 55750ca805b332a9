/* health.c - see health.h. */
#include "router/health.h"

#include "base/clock.h"
#include "router/json_text.h"

#include <inttypes.h>

static uint32_t n_live(const struct router *r)
{
    return table_n_live(r->table, UINT32_MAX, clock_now_us());
}

bool health_is_ready(const struct router *r)
{
    uint8_t state = r->service.state;
    bool loading = !r->models->n && r->n_building;
    bool reached = state == SERVICE_READY || state == SERVICE_DEGRADED;
    return reached && !r->draining && !loading && n_live(r);
}

void health_put_live(struct buf *b, const struct router *r)
{
    buf_printf(b, "{\"status\":\"alive\",\"scheduler\":%s}", r->scheduler ? "true" : "false");
}

static void put_replica(struct buf *b, const struct router *r, const struct table_row *row,
                        uint64_t now_us)
{
    const struct replica_load *l = &row->load;
    const struct table_worker *w = table_worker(r->table, row->worker);
    uint64_t silent_us = now_us > w->heard_us ? now_us - w->heard_us : 0;
    buf_printf(b, "{\"deployment\":%u,\"replica\":%u,\"state\":", l->deployment, l->replica);
    json_put_string(b, replica_state_name(l->state));
    buf_puts(b, ",\"host\":");
    json_put_string(b, w->host[0] ? w->host : NULL);
    buf_puts(b, ",\"rack\":");
    json_put_string(b, w->rack[0] ? w->rack : NULL);
    buf_printf(b,
               ",\"worker\":%u,\"epoch\":%" PRIu64 ",\"incarnation\":%u,\"suspect\":%s,"
               "\"draining\":%s,\"heard_s\":%.3f,",
               row->worker, l->epoch, l->incarnation,
               silent_us > (uint64_t)r->config.suspect_ms * 1000 ? "true" : "false",
               w->draining ? "true" : "false", (double)silent_us / 1e6);
    buf_printf(b,
               "\"load\":{\"active\":%u,\"queued\":%u,\"slots\":%u,\"kv_free_tokens\":%u,"
               "\"kv_total_tokens\":%u,\"step_us\":%u,\"n_steps\":%" PRIu64 ",\"n_tokens\":%" PRIu64
               ",\"step_p50_us\":%u,\"step_p99_us\":%u,\"n_prefill\":%" PRIu64
               ",\"n_reused\":%" PRIu64 ",\"n_preempted\":%" PRIu64 ",\"n_drafted\":%" PRIu64
               ",\"n_draft_held\":%" PRIu64 "}}",
               l->n_active, l->n_queued, l->n_slots, l->kv_free_tokens, l->kv_total_tokens,
               l->step_us, l->n_steps, l->n_tokens, l->step_p50_us, l->step_p99_us, l->n_prefill,
               l->n_reused, l->n_preempted, l->n_drafted, l->n_draft_held);
}

static void put_detail(struct buf *b, const struct router *r)
{
    const struct router_counters *c = &r->counters;
    uint64_t now_us = clock_now_us();
    buf_printf(b,
               ",\"counters\":{\"requests\":%" PRIu64 ",\"finished\":%" PRIu64
               ",\"failed\":%" PRIu64 ",\"canceled\":%" PRIu64 ",\"resubmitted\":%" PRIu64
               ",\"frames_bad\":%" PRIu64 ",\"entries_stale\":%" PRIu64
               ",\"entries_dropped\":%" PRIu64 ",\"connections\":%u},\"replicas\":[",
               c->n_requests, c->n_finished, c->n_failed, c->n_canceled, c->n_resubmitted,
               c->n_frames_bad, c->n_entries_stale, c->n_entries_dropped,
               http_server_n_connections(r->http));
    for (uint32_t i = 0; i < table_n_rows(r->table); i++) {
        if (i)
            buf_puts(b, ",");
        put_replica(b, r, table_row(r->table, i), now_us);
    }
    buf_puts(b, "]");
}

void health_put_ready(struct buf *b, const struct router *r, bool detail)
{
    const struct msg_service *s = &r->service;
    buf_printf(b, "{\"ready\":%s,\"state\":", health_is_ready(r) ? "true" : "false");
    json_put_string(b, service_state_name(s->state));
    buf_puts(b, ",\"progress\":");
    json_put_string(b, s->progress);
    buf_printf(b,
               ",\"n_ready\":%u,\"n_wanted\":%u,\"n_min\":%u,\"n_live\":%u,"
               "\"scheduler\":%s,\"draining\":%s,\"n_running\":%u,\"n_waiting\":%u",
               s->n_ready, s->n_wanted, s->n_min, n_live(r), r->scheduler ? "true" : "false",
               r->draining ? "true" : "false", r->n_flights, r->n_waiting);
    if (s->job_end_wall_s)
        buf_printf(b, ",\"job_end\":%" PRIu64, s->job_end_wall_s);
    if (detail)
        put_detail(b, r);
    buf_puts(b, "}");
}
