/* log.h - one line an event on standard error: time, level, role, rank, `module: sentence key=value`.
 *
 * The sink (role, rank, level) is process-wide and set once at start by main; log lines may come from any thread
 * (each line is one write(2)). Prompts, generated text, keys and secrets are never logged.
 */
#ifndef EXA_BASE_LOG_H
#define EXA_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* role: static string such as "worker"; rank < 0: none. Level from EXASERVE_LOG=debug|info|warn|error, default info. */
void log_init(const char *role, int rank);
int log_enabled(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
