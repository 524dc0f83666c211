/* The terminal: results on stdout, notes and progress on stderr, Ctrl-C as a flag. */
#ifndef QP_CLI_TERM_H
#define QP_CLI_TERM_H

#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit code when the reader of stdout went away, as for a program that SIGPIPE ends. */
enum { QP_EXIT_PIPE = 141 };

/* From here on Ctrl-C (SIGINT), SIGTERM and SIGHUP set a flag; the third signal ends the program at once, whatever it
 * leaves behind. SIGHUP stays ignored where it was (nohup). SIGPIPE and SIGXFSZ are ignored: writes to a closed pipe
 * are noticed by qp_out_failed, a file over the size limit is a failed write. */
void qp_term_init(void);

/* Whether one of them came; qp_term_clear_interrupt forgets Ctrl-C, and how often. */
bool qp_term_interrupted(void);
void qp_term_clear_interrupt(void);

/* The exit code after an interrupt: 130 for Ctrl-C (also when there was none), 143 for SIGTERM, 129 for SIGHUP. */
int qp_term_interrupt_code(void);

bool qp_term_is_tty(int fd);

/* Results. Written text is shown at once when stdout is a terminal or after qp_out_flush. */
void qp_out_write(const void *data, size_t n);
void qp_out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void qp_out_flush(void);

/* True once a write to stdout has failed: a long command stops then. */
bool qp_out_failed(void);

/* Flushes stdout and gives the program's exit code: `code`, or QP_EXIT_PIPE / QP_EXIT_FAILURE (with a message) /
 * qp_term_interrupt_code() when output was lost. */
int qp_out_finish(int code);

/* "quantpack: <message>" on stderr. Control characters in it, which a file's name or text may hold, and what is not
 * UTF-8 are written as \\xNN, so that they do nothing to the terminal; a message over 16 KB is cut. */
void qp_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The message of qp_note without what is around it. */
void qp_note_text(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* Prints err and returns the exit code that belongs to it (qp_term_interrupt_code() for QP_ECANCELLED, else
 * QP_EXIT_FAILURE). */
int qp_report(const qp_err *err);

/* Progress of something that may take over a second: nothing is shown before that; then a bar with rate and remaining
 * time on a terminal, a plain line every few seconds elsewhere. */
typedef struct qp_progress {
    const char *label, *unit; /* borrowed: "importing", "MB" */
    double total;             /* in units; 0: not known */
    uint64_t start_ns, shown_ns;
    double shown_done;
    bool shown;
} qp_progress;

void qp_progress_start(qp_progress *p, const char *label, const char *unit, double total);
void qp_progress_update(qp_progress *p, double done);
void qp_progress_end(qp_progress *p, double done);

/* "12.3 MB" style text of a byte count (decimal units) in out[cap]; returns out. */
char *qp_bytes_text(double bytes, char *out, size_t cap);

#endif
