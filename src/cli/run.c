/* Running requests to their end: see run.h. */
#include "cli/run.h"

#include "base/clock.h"
#include "cli/term.h"

#include <stdio.h>

void qp_run_seq_deinit(qp_run_seq *s)
{
    qp_ids_deinit(&s->out);
}

static bool on_token(void *arg, int32_t token, const float *logits)
{
    qp_run_seq *s = arg;
    (void)logits;
    if (!s->first_ns) s->first_ns = qp_clock_ns();
    if (qp_ids_push(&s->out, token, &s->err) != QP_OK) return false;
    if (s->on_token) s->on_token(s->arg, token);
    return !qp_term_interrupted();
}

static void on_finish(void *arg, qp_finish why, int32_t end_token, const qp_err *err)
{
    qp_run_seq *s = arg;
    bool failed_here = s->err.status != QP_OK;
    s->done = true;
    s->finish = failed_here ? QP_FINISH_ERROR : why;
    s->end_token = end_token;
    s->finish_ns = qp_clock_ns();
    if (why == QP_FINISH_ERROR && !failed_here) s->err = *err;
}

static void fill_stats(const qp_run_seq *seqs, size_t n, uint64_t start_ns, qp_run_stats *out)
{
    uint64_t last_first = start_ns, end = start_ns;
    size_t n_after_first = 0;
    *out = (qp_run_stats){0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        const qp_run_seq *s = &seqs[i];
        uint64_t first = s->first_ns ? s->first_ns : s->finish_ns;
        out->n_prompt += s->n_prompt;
        out->n_new += s->out.n;
        if (s->out.n) n_after_first += s->out.n - 1;
        if (first > last_first) last_first = first;
        if (s->finish_ns > end) end = s->finish_ns;
    }
    out->prefill_s = (double)(last_first - start_ns) * 1e-9;
    out->decode_s = (double)(end - last_first) * 1e-9;
    if (out->prefill_s > 0) out->prefill_rate = (double)out->n_prompt / out->prefill_s;
    if (out->decode_s > 0 && n_after_first) out->decode_rate = (double)n_after_first / out->decode_s;
}

qp_status qp_run_all(qp_engine *e, qp_run_seq *seqs, size_t n, const qp_request *base, qp_run_stats *stats, qp_err *err)
{
    qp_status st = QP_OK;
    uint64_t start_ns = qp_clock_ns();
    bool cancelled = false;
    size_t n_left = 0, n_submitted = 0;
    for (size_t i = 0; i < n && st == QP_OK; i++) {
        qp_request r = *base;
        r.prompt = seqs[i].prompt;
        r.n_prompt = seqs[i].n_prompt;
        r.events.on_token = on_token;
        r.events.on_finish = on_finish;
        r.events.arg = &seqs[i];
        seqs[i].submit_ns = qp_clock_ns();
        seqs[i].end_token = -1;
        st = qp_engine_submit(e, &r, &seqs[i].id, err);
        if (st == QP_OK) n_submitted++;
        if (st != QP_OK && n > 1) qp_wrap(err, "sequence %zu", i);
    }
    /* After a refused submission those before it are cancelled, so that no event comes for them later. */
    n_left = n_submitted;
    bool stop = st != QP_OK;
    while (n_left) {
        if ((stop || qp_term_interrupted() || qp_out_failed()) && !cancelled) {
            cancelled = true;
            for (size_t i = 0; i < n_submitted; i++)
                if (!seqs[i].done) qp_engine_cancel(e, seqs[i].id);
        }
        qp_status step = qp_engine_step(e, &n_left, stop ? &(qp_err){QP_OK, ""} : err);
        if (step != QP_OK) return stop ? st : step;
    }
    if (stop) return st;
    if (stats) fill_stats(seqs, n, start_ns, stats);
    if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
    if (qp_out_failed()) return qp_fail(err, QP_EIO, "%s", "");
    return QP_OK;
}

char *qp_run_stats_text(const qp_run_stats *s, char *out, size_t cap)
{
    int n =
        snprintf(out, cap, "%zu prompt tokens, %.1f tokens/s; %zu new tokens", s->n_prompt, s->prefill_rate, s->n_new);
    if (s->decode_rate > 0 && n > 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, ", %.1f tokens/s", s->decode_rate);
    return out;
}

const char *qp_finish_name(qp_finish f)
{
    static const char *const names[] = {"stop", "length", "cancelled", "error"};
    return names[f];
}
