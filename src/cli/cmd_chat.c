/* quantpack chat: a conversation in the terminal. */
#include "base/alloc.h"
#include "cli/chat_session.h"
#include "cli/cmd.h"
#include "cli/line_input.h"
#include "cli/load.h"
#include "cli/prompt.h"
#include "cli/run.h"
#include "cli/term.h"
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *system, *history, *load;
    uint32_t max_tokens;
    bool no_history;
} chat_args;

#define AT(field) offsetof(chat_args, field)
static const qp_opt options[] = {
    {"system", 0, QP_OPT_STR, "TEXT", AT(system), 0, 0, NULL, "the system message", NULL},
    {"load", 0, QP_OPT_STR, "FILE", AT(load), 0, 0, NULL, "go on with a conversation that /save wrote", NULL},
    {"max-tokens", 'n', QP_OPT_U32, "N", AT(max_tokens), 1, 1 << 30, NULL,
     "tokens of an answer at most; default: what fits, at most 512", NULL},
    {"history", 0, QP_OPT_STR, "FILE", AT(history), 0, 0, NULL,
     "where lines typed are kept; default: ~/.quantpack_history", NULL},
    {"no-history", 0, QP_OPT_FLAG, NULL, AT(no_history), 0, 0, NULL, "keep no lines", NULL},
};

/* What /set can change. */
typedef struct {
    qp_sampling_args sampling;
    uint32_t max_tokens; /* 0: what fits, at most 512 */
} settings;

static const qp_opt max_tokens_option[] = {
    {"max-tokens", 0, QP_OPT_U32, "N", offsetof(settings, max_tokens), 0, 1 << 30, NULL, "", NULL},
};

typedef struct {
    qp_loaded loaded;
    qp_engine_args engine;
    qp_chat *chat;
    qp_line_input *input;
    qp_conversation talk;
    settings set;
    uint64_t seed; /* of the next answer */
    bool stats, leave;
    bool failed; /* a message, /save or /load: the exit code when nobody watches */
    qp_run_stats last;
    qp_buf line;
} session;

/* ---- answers */

typedef struct {
    qp_detok detok;
    qp_buf text;
    size_t shown;
    qp_err err;
} answer;

static void show(answer *a)
{
    if (a->text.len == a->shown) return;
    qp_out_write(a->text.data + a->shown, a->text.len - a->shown);
    qp_out_flush();
    a->shown = a->text.len;
}

static void on_token(void *arg, int32_t token)
{
    answer *a = arg;
    if (a->err.status != QP_OK) return;
    qp_detok_push(&a->detok, token, &a->text, &a->err);
    show(a);
}

/* Room for the answer after a prompt of n tokens, or an error that says what to do. */
static qp_status room_for(const session *s, size_t n, uint32_t *max_tokens, qp_err *err)
{
    uint32_t len = qp_engine_get_opts(s->loaded.engine)->max_model_len;
    if (n >= len)
        return qp_fail(err, QP_ELIMIT,
                       "the conversation has %zu tokens, --max-model-len is %u: /undo or /clear makes room", n, len);
    uint32_t wanted = s->set.max_tokens ? s->set.max_tokens : 512;
    *max_tokens = len - n < wanted ? (uint32_t)(len - n) : wanted;
    return QP_OK;
}

/* Answers the conversation, whose last turn is the user's. The answer, whole or cut by Ctrl-C, becomes a turn. */
static qp_status reply(session *s, qp_err *err)
{
    qp_ids prompt = {0};
    qp_run_seq seq = {0};
    answer a = {.detok = {.t = s->loaded.tokenizer, .skip_special = true}};
    qp_request base = {0};
    char line[256];
    json_t *messages = qp_conversation_messages(&s->talk);
    qp_status st = messages ? QP_OK : qp_fail(err, QP_ENOMEM, "no memory for the messages");
    if (st == QP_OK) st = qp_messages_encode(s->chat, s->loaded.tokenizer, messages, &prompt, err);
    if (st == QP_OK) st = room_for(s, prompt.n, &base.max_tokens, err);
    if (st != QP_OK) goto out;
    s->set.sampling.seed = s->seed;
    base.sampling = qp_args_sampling(&s->set.sampling, qp_model_get_info(s->loaded.model));
    s->seed = s->set.sampling.seed + 1;
    seq = (qp_run_seq){.prompt = prompt.ids, .n_prompt = prompt.n, .on_token = on_token, .arg = &a};
    st = qp_run_all(s->loaded.engine, &seq, 1, &base, &s->last, err);
    if (st != QP_OK && st != QP_ECANCELLED) goto out;
    if (a.err.status == QP_OK) qp_detok_flush(&a.detok, &a.text, &a.err);
    show(&a);
    qp_out_write("\n", 1);
    qp_out_flush();
    if (st == QP_ECANCELLED) qp_note("stopped");
    if (st == QP_OK && seq.finish == QP_FINISH_LENGTH) qp_note("the answer was cut at %u tokens", base.max_tokens);
    st = QP_OK;
    if (a.err.status != QP_OK) st = qp_fail(err, a.err.status, "%s", a.err.msg);
    if (st == QP_OK && seq.finish == QP_FINISH_ERROR) st = qp_fail(err, seq.err.status, "%s", seq.err.msg);
    if (st == QP_OK) st = qp_conversation_add(&s->talk, "assistant", a.text.data ? a.text.data : "", a.text.len, err);
    if (s->stats) fprintf(stderr, "%s\n", qp_run_stats_text(&s->last, line, sizeof line));
    qp_term_clear_interrupt();
out:
    json_decref(messages);
    qp_run_seq_deinit(&seq);
    qp_detok_deinit(&a.detok);
    qp_buf_deinit(&a.text);
    qp_ids_deinit(&prompt);
    return st;
}

static void complain(session *s, const qp_err *err)
{
    s->failed = true;
    if (err->msg[0]) qp_note("%s", err->msg);
}

/* Says what went wrong; the user's turn that got no answer is dropped, so that the turns still alternate. */
static void reply_or_undo(session *s)
{
    qp_err err = {QP_OK, ""};
    if (reply(s, &err) == QP_OK) return;
    complain(s, &err);
    const char *role = qp_conversation_last_role(&s->talk);
    if (role && strcmp(role, "user") == 0) qp_conversation_drop(&s->talk, 1);
}

/* ---- commands */

static void do_help(session *s, const char *arg);

static void do_clear(session *s, const char *arg)
{
    (void)arg;
    qp_conversation_drop(&s->talk, qp_conversation_n_turns(&s->talk));
    qp_note("the conversation is empty again; the system message stays");
}

static void do_system(session *s, const char *arg)
{
    qp_err err = {QP_OK, ""};
    if (!*arg) {
        qp_note("system message: %s", s->talk.system ? json_string_value(s->talk.system) : "none");
        return;
    }
    if (qp_conversation_set_system(&s->talk, strcmp(arg, "none") == 0 ? NULL : arg, &err) != QP_OK)
        qp_note("%s", err.msg);
}

static void do_save(session *s, const char *arg)
{
    qp_err err = {QP_OK, ""};
    if (!*arg)
        qp_note("/save FILE");
    else if (qp_conversation_save(&s->talk, arg, &err) != QP_OK)
        complain(s, &err);
    else
        qp_note("%s: %zu messages", arg, qp_conversation_n_turns(&s->talk));
}

static void do_load(session *s, const char *arg)
{
    qp_err err = {QP_OK, ""};
    if (!*arg)
        qp_note("/load FILE");
    else if (qp_conversation_load(&s->talk, arg, &err) != QP_OK)
        complain(s, &err);
    else
        qp_note("%s: %zu messages", arg, qp_conversation_n_turns(&s->talk));
}

static void do_regen(session *s, const char *arg)
{
    (void)arg;
    const char *role = qp_conversation_last_role(&s->talk);
    if (!role) {
        qp_note("there is no answer yet");
        return;
    }
    if (strcmp(role, "assistant") == 0) qp_conversation_drop(&s->talk, 1);
    reply_or_undo(s);
}

static void do_undo(session *s, const char *arg)
{
    (void)arg;
    const char *role = qp_conversation_last_role(&s->talk);
    if (!role) {
        qp_note("there is nothing to undo");
        return;
    }
    qp_conversation_drop(&s->talk, strcmp(role, "assistant") == 0 ? 2 : 1);
    qp_note("the last question and its answer are gone");
}

static void print_settings(const session *s)
{
    qp_sampling_args args = s->set.sampling;
    args.seed = s->seed;
    qp_sampling p = qp_args_sampling(&args, qp_model_get_info(s->loaded.model));
    qp_note("temperature %g, top-k %d, top-p %g, min-p %g, repetition-penalty %g, seed %llu%s, max-tokens %u%s",
            (double)p.temperature, p.top_k, (double)p.top_p, (double)p.min_p, (double)p.repetition_penalty,
            (unsigned long long)s->seed, s->seed ? "" : " (made up)", s->set.max_tokens,
            s->set.max_tokens ? "" : " (what fits, at most 512)");
}

static void do_set(session *s, const char *arg)
{
    char name[64], msg[512];
    size_t n = strcspn(arg, " =");
    const char *value = arg + n + strspn(arg + n, " =");
    if (!*arg) {
        print_settings(s);
        return;
    }
    if (n >= sizeof name || !*value) {
        qp_note("/set NAME VALUE, as in /set temperature 0.7");
        return;
    }
    memcpy(name, arg, n);
    name[n] = 0;
    qp_sampling_args fresh; /* the group's maker resets what it is given */
    qp_opt_group group = qp_sampling_group(&fresh);
    group.args = &s->set.sampling;
    if (strcmp(name, "max-tokens") == 0) group = (qp_opt_group){"", max_tokens_option, 1, &s->set};
    if (!qp_option_set(&group, name, value, msg, sizeof msg))
        qp_note("%s", msg);
    else if (strcmp(name, "seed") == 0)
        s->seed = s->set.sampling.seed;
}

static void do_stats(session *s, const char *arg)
{
    char line[256];
    if (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0) {
        s->stats = arg[1] == 'n';
        return;
    }
    fprintf(stderr, "last answer: %s\n", qp_run_stats_text(&s->last, line, sizeof line));
    const qp_engine_opts *o = qp_engine_get_opts(s->loaded.engine);
    fprintf(stderr, "%zu messages; at most %u tokens; %u threads, %s kernels\n", qp_conversation_n_turns(&s->talk),
            o->max_model_len, o->n_threads, qp_engine_cpu_level(s->loaded.engine));
}

static void do_exit(session *s, const char *arg)
{
    (void)arg;
    s->leave = true;
}

static const struct {
    const char *name, *help;
    void (*run)(session *s, const char *arg);
} commands[] = {
    {"help", "this list", do_help},
    {"clear", "forget the conversation", do_clear},
    {"system", "/system TEXT sets the system message; none: no message; alone: shows it", do_system},
    {"save", "/save FILE writes the conversation (JSON)", do_save},
    {"load", "/load FILE goes on with a saved one", do_load},
    {"regen", "answer the last question again", do_regen},
    {"undo", "take back the last question and its answer", do_undo},
    {"set", "/set temperature 0.7, top-k, top-p, min-p, repetition-penalty, seed, max-tokens; alone: shows them",
     do_set},
    {"stats", "counts and speed of the last answer; /stats off: no line after each", do_stats},
    {"exit", "leave (also /quit, Ctrl-D)", do_exit},
    {"quit", NULL, do_exit},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void do_help(session *s, const char *arg)
{
    (void)s;
    (void)arg;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].help) fprintf(stderr, "  /%-8s %s\n", commands[i].name, commands[i].help);
    fprintf(stderr,
            "A line that ends in \\ goes on in the next one. \"\"\" begins and ends a message of several lines.\n"
            "A message that begins with / is written with two. Ctrl-C stops an answer; at the prompt it leaves.\n");
}

static void run_command(session *s, const char *text)
{
    char name[32];
    const char *words[N_COMMANDS];
    size_t n = strcspn(text, " \t\n");
    const char *arg = text + n + strspn(text + n, " \t\n");
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        words[i] = commands[i].name;
        if (strcmp(name, commands[i].name) == 0) {
            commands[i].run(s, arg);
            return;
        }
    }
    const char *near = qp_nearest(name, words, N_COMMANDS);
    qp_note("no command /%s%s%s%s (/help lists them)", name, near ? "; did you mean /" : "", near ? near : "",
            near ? "?" : "");
}

/* ---- the loop */

static qp_status take_message(session *s, qp_err *err)
{
    const char *text = s->line.data ? s->line.data : "";
    size_t n = s->line.len;
    if (strspn(text, " \t\n") >= n) return QP_OK;
    if (text[0] == '/' && text[1] != '/') {
        run_command(s, text + 1);
        return QP_OK;
    }
    size_t skip = text[0] == '/';
    QP_TRY(qp_conversation_add(&s->talk, "user", text + skip, n - skip, err));
    reply_or_undo(s);
    return QP_OK;
}

static qp_status loop(session *s, qp_err *err)
{
    while (!s->leave && !qp_out_failed()) {
        if (qp_term_interrupted()) return qp_fail(err, QP_ECANCELLED, "interrupted");
        switch (qp_line_input_read(s->input, "> ", &s->line, err)) {
        case QP_LINE_MESSAGE:
            QP_TRY(take_message(s, err));
            break;
        case QP_LINE_END:
            s->leave = true;
            break;
        case QP_LINE_INTERRUPTED:
            return qp_fail(err, QP_ECANCELLED, "interrupted");
        default:
            return err->status;
        }
    }
    return QP_OK;
}

static qp_status open_input(session *s, const chat_args *args, qp_err *err)
{
    char path[4096];
    const char *history = args->history, *home = getenv("HOME");
    if (!history && home && *home && snprintf(path, sizeof path, "%s/.quantpack_history", home) < (int)sizeof path)
        history = path;
    if (args->history && !(qp_term_is_tty(STDIN_FILENO) && qp_term_is_tty(STDOUT_FILENO)))
        qp_line_history_check(args->history);
    return qp_line_input_new(&s->input, args->no_history ? NULL : history, err);
}

static qp_status run(const char *dir, const chat_args *args, session *s, qp_err *err)
{
    qp_need need = {1, 0, 0, false};
    QP_TRY(qp_load_model(&s->loaded, dir, &s->engine, true, err));
    QP_TRY(qp_chat_open(&s->chat, dir, NULL, err));
    if (qp_chat_check(s->chat, err) != QP_OK)
        return qp_wrap(err, "%s cannot chat (`quantpack generate --raw` continues a text)", dir);
    if (args->load) QP_TRY(qp_conversation_load(&s->talk, args->load, err));
    if (args->system) QP_TRY(qp_conversation_set_system(&s->talk, args->system, err));
    QP_TRY(qp_load_engine(&s->loaded, &s->engine, &need, err));
    QP_TRY(open_input(s, args, err));
    if (qp_term_is_tty(STDIN_FILENO))
        fprintf(stderr, "%s, up to %u tokens. /help lists the commands, Ctrl-D leaves.\n", dir,
                qp_engine_get_opts(s->loaded.engine)->max_model_len);
    return loop(s, err);
}

int qp_cmd_chat(int argc, char **argv)
{
    chat_args args = {0};
    session s = {.stats = true};
    const qp_opt_group groups[] = {{"chat options", options, sizeof options / sizeof options[0], &args},
                                   qp_sampling_group(&s.set.sampling),
                                   qp_engine_group(&s.engine)};
    const qp_usage usage = {
        .command = "chat",
        .arguments = "MODEL [options]",
        .summary = "talk to a model in the terminal",
        .description =
            "Answers go to stdout, everything else to stderr, so questions can also come from a file: each line is a "
            "message, and the exit code is 1 when one failed. In the chat, /help lists commands such as /regen, /undo, "
            "/save and /set.",
        .examples = "  quantpack chat models/mine\n"
                    "  quantpack chat models/mine --system \"Answer in one sentence.\" --temperature 0.7\n"
                    "  echo \"Why is the sky blue?\" | quantpack chat models/mine\n",
        .min_positional = 1,
        .max_positional = 1,
        .groups = groups,
        .n_groups = 3,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (args.history && args.no_history) return qp_usage_error("chat", "wanted --history or --no-history, not both");
    s.set.max_tokens = args.max_tokens;
    s.seed = s.set.sampling.seed;
    qp_json_init();
    qp_err err = {0};
    qp_status st = run(pos[0], &args, &s, &err);
    qp_line_input_free(s.input);
    qp_conversation_deinit(&s.talk);
    qp_chat_free(s.chat);
    qp_loaded_close(&s.loaded);
    qp_buf_deinit(&s.line);
    if (st != QP_OK) return qp_report(&err);
    return s.failed && !qp_term_is_tty(STDIN_FILENO) ? QP_EXIT_FAILURE : QP_EXIT_OK;
}
