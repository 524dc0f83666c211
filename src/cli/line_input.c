/* Lines from the user: see line_input.h. */
#include "cli/line_input.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/term.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t MAX_MESSAGE = (size_t)16 << 20;

struct qp_line_input {
    EditLine *el; /* NULL: not a terminal */
    History *history;
    char *history_path;
    const char *prompt;
    qp_buf line; /* the last line read, without its newline */
};

static char *prompt_of(EditLine *el)
{
    static char text[64]; /* libedit wants a writable string that outlives the call */
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    snprintf(text, sizeof text, "%s", ((qp_line_input *)data)->prompt);
    return text;
}

/* Waits for a byte of the terminal. Ctrl-C may come at any time, also between the look at the flag and the wait, so it
 * is held back but for the wait itself. False after Ctrl-C, at the end and on errors. */
static bool wait_for_byte(unsigned char *out)
{
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    sigprocmask(SIG_BLOCK, &held, &before);
    bool ready = false, failed = false;
    while (!ready && !failed && !qp_term_interrupted()) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(STDIN_FILENO, &set);
        int n = pselect(STDIN_FILENO + 1, &set, NULL, NULL, NULL, &before);
        ready = n > 0;
        failed = n < 0 && errno != EINTR;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready && read(STDIN_FILENO, out, 1) == 1;
}

/* libedit's way to read: 1 and a character, 0 at the end, -1 after Ctrl-C. */
static int read_character(EditLine *el, wchar_t *out)
{
    char bytes[4];
    size_t n = 0;
    int32_t cp;
    (void)el;
    do {
        unsigned char c;
        if (!wait_for_byte(&c)) return qp_term_interrupted() ? -1 : 0;
        bytes[n++] = (char)c;
    } while (n < sizeof bytes && qp_utf8_incomplete_tail(bytes, n) == n);
    qp_utf8_decode(bytes, n, &cp);
    *out = cp < 0 ? 0xFFFD : (wchar_t)cp;
    return 1;
}

static qp_status start_editor(qp_line_input *in, qp_err *err)
{
    HistEvent ev;
    /* libedit keeps wide characters; UTF-8 also where no locale is set. */
    if ((!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) && !setlocale(LC_CTYPE, "C.UTF-8"))
        qp_note("no UTF-8 locale here: other letters than ASCII may not be typed");
    in->el = el_init("quantpack", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->el || !in->history) return qp_fail(err, QP_ENOMEM, "line editing could not start");
    el_set(in->el, EL_CLIENTDATA, in);
    el_set(in->el, EL_PROMPT, prompt_of);
    el_set(in->el, EL_GETCFN, read_character);
    el_set(in->el, EL_EDITOR, "emacs");
    el_set(in->el, EL_HIST, history, in->history);
    el_set(in->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* Ctrl-D typed while an answer streams reaches the editor as a NUL: the line discipline was still the terminal's.
     */
    el_set(in->el, EL_BIND, "^@", "em-delete-or-list", NULL);
    history(in->history, &ev, H_SETSIZE, 1000);
    history(in->history, &ev, H_SETUNIQUE, 1);
    if (in->history_path) history(in->history, &ev, H_LOAD, in->history_path);
    el_source(in->el, NULL); /* the user's ~/.editrc */
    return QP_OK;
}

qp_status qp_line_input_new(qp_line_input **out, const char *history_path, qp_err *err)
{
    qp_line_input *in;
    qp_status st = QP_OK;
    QP_TRY(qp_new(&in, 1, sizeof *in, "line input", err));
    in->line.limit = MAX_MESSAGE;
    if (history_path && !(in->history_path = qp_strdup(history_path)))
        QP_TRY_OUT(qp_fail(err, QP_ENOMEM, "no memory for a path"));
    if (qp_term_is_tty(STDIN_FILENO) && qp_term_is_tty(STDOUT_FILENO)) QP_TRY_OUT(start_editor(in, err));
    *out = in;
    return QP_OK;
out:
    qp_line_input_free(in);
    return st;
}

void qp_line_history_check(const char *path)
{
    struct stat s;
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    int why = 0;
    if (slash && (size_t)snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path) >= sizeof folder)
        why = ENAMETOOLONG;
    else if (!stat(path, &s))
        why = S_ISDIR(s.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
    else if (errno != ENOENT || access(folder, W_OK | X_OK))
        why = errno;
    if (why) qp_note("%s: the history could not be written: %s", path, strerror(why));
}

void qp_line_input_free(qp_line_input *in)
{
    HistEvent ev;
    if (!in) return;
    if (in->history && in->history_path) {
        mode_t old = umask(077);
        if (history(in->history, &ev, H_SAVE, in->history_path) < 0)
            qp_note("%s: the history could not be written", in->history_path);
        umask(old);
    }
    if (in->history) history_end(in->history);
    if (in->el) el_end(in->el);
    qp_free(in->history_path);
    qp_buf_deinit(&in->line);
    qp_free(in);
}

/* One line of a terminal. */
static qp_line_result edit_line(qp_line_input *in, qp_err *err)
{
    int n = 0;
    HistEvent ev;
    errno = 0;
    el_resize(in->el);
    const char *text = el_gets(in->el, &n);
    if (qp_term_interrupted()) return QP_LINE_INTERRUPTED;
    if (!text || n <= 0) return QP_LINE_END;
    if (n > 1) history(in->history, &ev, H_ENTER, text);
    qp_buf_add(&in->line, text, (size_t)n - (text[n - 1] == '\n'));
    return qp_buf_check(&in->line, "a line", err) == QP_OK ? QP_LINE_MESSAGE : QP_LINE_FAILED;
}

/* One line of a file or pipe. */
static qp_line_result plain_line(qp_line_input *in, qp_err *err)
{
    int c;
    bool any = false;
    errno = 0;
    while ((c = getc(stdin)) != EOF) {
        any = true;
        if (c == '\n') break;
        qp_buf_addc(&in->line, (char)c);
        if (in->line.failed) break;
    }
    if (qp_term_interrupted()) return QP_LINE_INTERRUPTED;
    if (c == EOF && ferror(stdin)) {
        qp_fail(err, QP_EIO, "reading the input: %s", strerror(errno));
        return QP_LINE_FAILED;
    }
    if (qp_buf_check(&in->line, "a line of input", err) != QP_OK) return QP_LINE_FAILED;
    return any ? QP_LINE_MESSAGE : QP_LINE_END;
}

static qp_line_result next_line(qp_line_input *in, const char *prompt, qp_err *err)
{
    qp_buf_clear(&in->line);
    in->prompt = prompt;
    return in->el ? edit_line(in, err) : plain_line(in, err);
}

/* Takes the end mark off the line when it has it. */
static bool cut_tail(qp_buf *line, const char *mark)
{
    size_t n = strlen(mark);
    if (line->len < n || memcmp(line->data + line->len - n, mark, n) != 0) return false;
    line->len -= n;
    line->data[line->len] = 0;
    return true;
}

qp_line_result qp_line_input_read(qp_line_input *in, const char *prompt, qp_buf *out, qp_err *err)
{
    qp_buf_clear(out);
    out->limit = MAX_MESSAGE;
    qp_line_result r = next_line(in, prompt, err);
    if (r != QP_LINE_MESSAGE) return r;
    size_t skip = in->line.len >= 3 && memcmp(in->line.data, "\"\"\"", 3) == 0 ? 3 : 0;
    bool quoted = skip != 0, more;
    for (;;) {
        /* `"""` alone opens; `"""text"""` is a whole message. */
        if (quoted)
            more = in->line.len < skip + 3 ? skip || !cut_tail(&in->line, "\"\"\"") : !cut_tail(&in->line, "\"\"\"");
        else
            more = cut_tail(&in->line, "\\");
        if (in->line.len > skip) qp_buf_add(out, in->line.data + skip, in->line.len - skip);
        if (!more) break;
        if (!quoted || out->len || !skip) qp_buf_addc(out, '\n'); /* not after an opening line that has quotes alone */
        skip = 0;
        r = next_line(in, "... ", err);
        if (r == QP_LINE_END) {
            qp_note("the input ended inside a message, which is dropped");
            return r;
        }
        if (r != QP_LINE_MESSAGE) return r;
    }
    if (quoted && out->len && out->data[out->len - 1] == '\n') out->data[--out->len] = 0;
    return qp_buf_check(out, "a message", err) == QP_OK ? QP_LINE_MESSAGE : QP_LINE_FAILED;
}
