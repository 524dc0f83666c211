/* The terminal: see term.h. */
#include "cli/term.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/options.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, n_interrupts; /* the signal, 0: none; since the last clearing */
static int out_errno;                                   /* of the first failed write to stdout */

static const uint64_t FIRST_NS = 1000000000, BAR_NS = 100000000, LINE_NS = 5000000000;

/* The last of the signals that end a run; one that ends the program is not followed by a mere Ctrl-C. */
static void on_interrupt(int sig)
{
    enum { PATIENCE = 3 };
    if (!interrupted || interrupted == SIGINT) interrupted = sig;
    if (++n_interrupts < PATIENCE) return;
    signal(sig, SIG_DFL);
    raise(sig); /* held back until this returns */
}

void qp_term_init(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa, before;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_interrupt;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&sa.sa_mask, signals[i]);
    /* No SA_RESTART: a blocked read of the terminal returns. */
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        bool ignored = signals[i] == SIGHUP && !sigaction(SIGHUP, NULL, &before) && before.sa_handler == SIG_IGN;
        if (!ignored) sigaction(signals[i], &sa, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

bool qp_term_interrupted(void)
{
    return interrupted != 0;
}

void qp_term_clear_interrupt(void)
{
    if (interrupted && interrupted != SIGINT) return;
    interrupted = 0;
    n_interrupts = 0;
}

int qp_term_interrupt_code(void)
{
    return interrupted ? 128 + interrupted : QP_EXIT_INTERRUPTED;
}

bool qp_term_is_tty(int fd)
{
    return isatty(fd) == 1;
}

static void check_out(bool ok)
{
    if (!ok && !out_errno) out_errno = errno ? errno : EIO;
}

void qp_out_write(const void *data, size_t n)
{
    if (n) check_out(fwrite(data, 1, n, stdout) == n);
}

void qp_out_printf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    check_out(vprintf(fmt, ap) >= 0);
    va_end(ap);
}

void qp_out_flush(void)
{
    check_out(fflush(stdout) == 0);
}

bool qp_out_failed(void)
{
    return out_errno != 0;
}

int qp_out_finish(int code)
{
    qp_out_flush();
    if (!out_errno && ferror(stdout)) out_errno = EIO;
    if (!out_errno) return code;
    if (out_errno == EPIPE) return QP_EXIT_PIPE;
    if (out_errno == EINTR && interrupted) { /* while the reader kept it waiting */
        if (code == QP_EXIT_OK) qp_note("interrupted");
        return qp_term_interrupt_code();
    }
    fprintf(stderr, "quantpack: writing the output failed: %s\n", strerror(out_errno));
    return QP_EXIT_FAILURE;
}

void qp_note_text(const char *fmt, va_list ap)
{
    char text[16384];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    size_t len = n > 0 ? strlen(text) : 0;
    for (size_t i = 0, step; i < len; i += step) {
        int32_t cp;
        step = qp_utf8_decode(text + i, len - i, &cp);
        bool control = cp < 0x20 || (cp >= 0x7F && cp < 0xA0); /* -1: not UTF-8 */
        for (size_t k = i; k < i + step; k++) fprintf(stderr, control ? "\\x%02x" : "%c", (unsigned char)text[k]);
    }
    if ((size_t)n > len) fputs("...", stderr);
}

void qp_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("quantpack: ", stderr);
    qp_note_text(fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int qp_report(const qp_err *err)
{
    if (err->status == QP_ECANCELLED) {
        qp_note("interrupted");
        return qp_term_interrupt_code();
    }
    qp_note("%s", err->msg[0] ? err->msg : qp_status_name(err->status));
    return QP_EXIT_FAILURE;
}

void qp_progress_start(qp_progress *p, const char *label, const char *unit, double total)
{
    *p = (qp_progress){label, unit, total, qp_clock_ns(), 0, 0, false};
}

static void show(qp_progress *p, double done, uint64_t now, bool tty)
{
    enum { WIDTH = 30 };
    double seconds = (double)(now - p->start_ns) * 1e-9, rate = seconds > 0 ? done / seconds : 0;
    char bar[WIDTH + 1], rest[64] = "";
    if (p->total > 0) {
        double share = done < p->total ? done / p->total : 1;
        int full = (int)(share * WIDTH);
        for (int i = 0; i < WIDTH; i++) bar[i] = i < full ? '#' : '.';
        bar[WIDTH] = 0;
        if (rate > 0 && done < p->total) snprintf(rest, sizeof rest, ", %.0f s left", (p->total - done) / rate);
        if (tty)
            fprintf(stderr, "\r%s [%s] %3.0f%% %.0f/%.0f %s, %.1f %s/s%s\033[K", p->label, bar, share * 100, done,
                    p->total, p->unit, rate, p->unit, rest);
        else
            fprintf(stderr, "%s: %.0f%%, %.0f of %.0f %s, %.1f %s/s%s\n", p->label, share * 100, done, p->total,
                    p->unit, rate, p->unit, rest);
    } else if (tty) {
        fprintf(stderr, "\r%s: %.0f %s, %.1f %s/s\033[K", p->label, done, p->unit, rate, p->unit);
    } else {
        fprintf(stderr, "%s: %.0f %s, %.1f %s/s\n", p->label, done, p->unit, rate, p->unit);
    }
    fflush(stderr);
    p->shown = true;
    p->shown_done = done;
    p->shown_ns = now;
}

void qp_progress_update(qp_progress *p, double done)
{
    uint64_t now = qp_clock_ns();
    bool tty = qp_term_is_tty(STDERR_FILENO);
    if (now - p->start_ns < FIRST_NS || (p->shown && now - p->shown_ns < (tty ? BAR_NS : LINE_NS))) return;
    show(p, done, now, tty);
}

void qp_progress_end(qp_progress *p, double done)
{
    if (!p->shown) return;
    bool tty = qp_term_is_tty(STDERR_FILENO);
    if (tty || done > p->shown_done) show(p, done, qp_clock_ns(), tty);
    if (tty) fputc('\n', stderr);
}

char *qp_bytes_text(double bytes, char *out, size_t cap)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t i = 0;
    while (bytes >= 1000 && i + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        i++;
    }
    snprintf(out, cap, i ? "%.2f %s" : "%.0f %s", bytes, units[i]);
    return out;
}
