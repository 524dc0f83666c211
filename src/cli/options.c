/* Command-line options: see options.h. */
#include "cli/options.h"

#include "cli/term.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 64, HELP_COLUMN = 34, HELP_WIDTH = 100 };

bool qp_parse_u64(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
    if (!isdigit((unsigned char)text[0])) return false;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || v < lo || v > hi) return false;
    *out = v;
    return true;
}

bool qp_parse_f64(const char *text, double lo, double hi, double *out)
{
    if (!*text || isspace((unsigned char)text[0])) return false;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v) || v < lo || v > hi) return false;
    *out = v;
    return true;
}

/* Optimal string alignment distance of two words, or MAX_WORD when one is longer than that. */
static size_t distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na >= MAX_WORD || nb >= MAX_WORD) return MAX_WORD;
    unsigned char d[MAX_WORD + 1][MAX_WORD + 1];
    for (size_t i = 0; i <= na; i++) d[i][0] = (unsigned char)i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1U < best) best = d[i - 1][j] + 1U;
            if (d[i][j - 1] + 1U < best) best = d[i][j - 1] + 1U;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1U < best)
                best = d[i - 2][j - 2] + 1U;
            d[i][j] = (unsigned char)best;
        }
    }
    return d[na][nb];
}

const char *qp_nearest(const char *s, const char *const *words, size_t n)
{
    const char *best = NULL;
    size_t len = strlen(s), best_d = len < 3 ? 2 : 2 + len / 4;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(s, words[i]);
        /* A name cut short is as near as one wrong letter. */
        if (len >= 3 && strncmp(s, words[i], len) == 0 && d > 1) d = 1;
        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    return best;
}

int qp_usage_error(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "quantpack %s: ", command);
    qp_note_text(fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n`quantpack %s --help` lists what it takes.\n", command);
    return QP_EXIT_USAGE;
}

/* Number of choices in "a|b|c"; index of text among them, or -1. */
static int choice_index(const char *choices, const char *text)
{
    size_t n = strlen(text);
    int i = 0;
    for (const char *p = choices; p; i++) {
        const char *bar = strchr(p, '|');
        size_t len = bar ? (size_t)(bar - p) : strlen(p);
        if (len == n && memcmp(p, text, n) == 0) return i;
        p = bar ? bar + 1 : NULL;
    }
    return -1;
}

/* "a|b|c" as "a, b, c". */
static void choices_text(const char *choices, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = choices; *p && n + 3 < cap; p++) {
        out[n++] = *p == '|' ? ',' : *p;
        if (*p == '|') out[n++] = ' ';
    }
    out[n] = 0;
}

static void range_of(const qp_opt *o, double *lo, double *hi)
{
    *lo = o->lo;
    *hi = o->hi;
    if (o->lo < 0 || o->lo > 0 || o->hi < 0 || o->hi > 0) return;
    switch (o->kind) {
    case QP_OPT_U32:
        *hi = UINT32_MAX;
        break;
    case QP_OPT_U64:
        *hi = 0x1p53;
        break;
    case QP_OPT_I32:
        *lo = INT32_MIN;
        *hi = INT32_MAX;
        break;
    default:
        *lo = -1e300;
        *hi = 1e300;
        break;
    }
}

/* Stores an integer value; false when text is none or out of range. */
static bool set_integer(const qp_opt *o, void *field, const char *text, double lo, double hi)
{
    bool negative = text[0] == '-';
    uint64_t u = 0;
    if (negative && o->kind != QP_OPT_I32) return false;
    if (!qp_parse_u64(text + negative, 0, o->kind == QP_OPT_U64 ? UINT64_MAX : UINT32_MAX, &u)) return false;
    double v = negative ? -(double)u : (double)u;
    if (v < lo || (v > hi && !(o->kind == QP_OPT_U64 && o->hi <= 0))) return false;
    if (o->kind == QP_OPT_U64) memcpy(field, &u, sizeof u);
    if (o->kind == QP_OPT_U32) memcpy(field, &(uint32_t){(uint32_t)u}, sizeof(uint32_t));
    if (o->kind == QP_OPT_I32) memcpy(field, &(int32_t){(int32_t)v}, sizeof(int32_t));
    return true;
}

static bool set_value(const qp_opt *o, void *args, const char *text, char *msg, size_t cap)
{
    void *field = (char *)args + o->offset;
    double lo, hi, v;
    char list[256];
    range_of(o, &lo, &hi);
    switch (o->kind) {
    case QP_OPT_FLAG:
        *(bool *)field = true;
        return true;
    case QP_OPT_STR:
        memcpy(field, &text, sizeof text);
        return true;
    case QP_OPT_CHOICE: {
        int i = choice_index(o->value, text);
        if (i >= 0) {
            *(int *)field = i;
            return true;
        }
        choices_text(o->value, list, sizeof list);
        if (o->refused && choice_index(o->refused, text) >= 0)
            snprintf(msg, cap, "--%s: %s is not in this version, which has: %s", o->name, text, list);
        else
            snprintf(msg, cap, "--%s: \"%s\", wanted one of: %s", o->name, text, list);
        return false;
    }
    case QP_OPT_FLOAT:
        if (!qp_parse_f64(text, lo, hi, &v)) break;
        /* What takes it works in single precision: it would become 0, which means something else. */
        if (fabs(v) > 0 && fabs(v) < (double)FLT_MIN) {
            snprintf(msg, cap, "--%s: \"%s\" is too near to 0, wanted 0 or %.3g and more", o->name, text,
                     (double)FLT_MIN);
            return false;
        }
        *(double *)field = v;
        return true;
    default:
        if (!set_integer(o, field, text, lo, hi)) break;
        return true;
    }
    const char *noun = o->kind == QP_OPT_FLOAT ? "a number" : "a whole number";
    if (hi >= 1e15)
        snprintf(msg, cap, "--%s: \"%s\", wanted %s%s", o->name, text, noun, lo > 0 ? " above 0" : "");
    else
        snprintf(msg, cap, "--%s: \"%s\", wanted %s from %.10g to %.10g", o->name, text, noun, lo, hi);
    return false;
}

static const qp_opt *find_option(const qp_opt_group *groups, size_t n_groups, const char *name, size_t len,
                                 char short_name, const qp_opt_group **in)
{
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n_opts; i++) {
            const qp_opt *o = &groups[g].opts[i];
            bool hit = name ? strlen(o->name) == len && memcmp(o->name, name, len) == 0
                            : short_name && o->short_name == short_name;
            if (!hit) continue;
            *in = &groups[g];
            return o;
        }
    }
    return NULL;
}

bool qp_option_set(const qp_opt_group *g, const char *name, const char *text, char *msg, size_t cap)
{
    const qp_opt_group *in;
    const qp_opt *o = find_option(g, 1, name, strlen(name), 0, &in);
    if (o) return set_value(o, g->args, text, msg, cap);
    const char *words[MAX_WORD];
    size_t n = 0;
    for (size_t i = 0; i < g->n_opts && n < MAX_WORD; i++) words[n++] = g->opts[i].name;
    const char *near = qp_nearest(name, words, n);
    snprintf(msg, cap, "%s is not an option here%s%s%s", name, near ? "; did you mean " : "", near ? near : "",
             near ? "?" : "");
    return false;
}

static int unknown_option(const qp_usage *u, const char *arg)
{
    const char *words[256];
    char word[MAX_WORD + 1];
    size_t n = 0, dashes = strspn(arg, "-"), len = strcspn(arg + dashes, "=");
    for (size_t g = 0; g < u->n_groups; g++)
        for (size_t i = 0; i < u->groups[g].n_opts && n < 255; i++) words[n++] = u->groups[g].opts[i].name;
    words[n++] = "help";
    if (len > MAX_WORD) len = MAX_WORD;
    memcpy(word, arg + dashes, len);
    word[len] = 0;
    const char *near = qp_nearest(word, words, n);
    if (near)
        return qp_usage_error(u->command, "no option %.*s; did you mean --%s?", (int)strcspn(arg, "="), arg, near);
    return qp_usage_error(u->command, "no option %.*s", (int)strcspn(arg, "="), arg);
}

/* Reads the option at argv[*i]; *i ends at the last argument it took. Returns 0, or QP_EXIT_USAGE. */
static int parse_option(const qp_usage *u, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *text = NULL;
    const qp_opt_group *g = NULL;
    const qp_opt *o;
    if (arg[1] == '-') {
        size_t len = strcspn(arg + 2, "=");
        o = find_option(u->groups, u->n_groups, arg + 2, len, 0, &g);
        if (arg[2 + len] == '=') text = arg + 2 + len + 1;
    } else {
        o = arg[2] ? NULL : find_option(u->groups, u->n_groups, NULL, 0, arg[1], &g);
    }
    if (!o) return unknown_option(u, arg);
    char msg[512];
    if (o->kind == QP_OPT_FLAG && text) return qp_usage_error(u->command, "--%s takes no value", o->name);
    if (o->kind != QP_OPT_FLAG && !text) {
        if (*i + 1 >= argc) return qp_usage_error(u->command, "--%s needs a value: %s", o->name, o->value);
        text = argv[++*i];
    }
    return set_value(o, g->args, text, msg, sizeof msg) ? 0 : qp_usage_error(u->command, "%s", msg);
}

static bool set_defaults(const qp_usage *u)
{
    char msg[512];
    for (size_t g = 0; g < u->n_groups; g++) {
        const qp_opt_group *group = &u->groups[g];
        for (size_t i = 0; i < group->n_opts; i++) {
            const qp_opt *o = &group->opts[i];
            if (o->fallback && !set_value(o, group->args, o->fallback, msg, sizeof msg)) {
                fprintf(stderr, "quantpack %s: default of %s\n", u->command, msg);
                return false;
            }
        }
    }
    return true;
}

bool qp_options_parse(const qp_usage *u, int argc, char **argv, const char **positional, size_t *n_positional,
                      int *exit_code)
{
    size_t n = 0;
    bool options = true;
    for (size_t i = 0; i < QP_MAX_POSITIONAL; i++) positional[i] = NULL;
    *exit_code = QP_EXIT_USAGE;
    if (!set_defaults(u)) return false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (options && strcmp(arg, "--") == 0) {
            options = false;
        } else if (options && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            qp_usage_print(u);
            *exit_code = fflush(stdout) ? QP_EXIT_FAILURE : QP_EXIT_OK;
            return false;
        } else if (options && arg[0] == '-' && arg[1]) {
            if (parse_option(u, argc, argv, &i)) return false;
        } else if (n == u->max_positional || n == QP_MAX_POSITIONAL) {
            qp_usage_error(u->command, "unexpected argument \"%s\"", arg);
            return false;
        } else {
            positional[n++] = arg;
        }
    }
    if (n < u->min_positional) {
        qp_usage_error(u->command, n ? "an argument is missing: %s" : "no argument given, wanted: %s", u->arguments);
        return false;
    }
    if (n_positional) *n_positional = n;
    *exit_code = QP_EXIT_OK;
    return true;
}

bool qp_option_given(const qp_usage *u, int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *arg = argv[i];
        bool is_long = arg[0] == '-' && arg[1] == '-';
        const qp_opt_group *g;
        size_t len = is_long ? strcspn(arg + 2, "=") : 0;
        const qp_opt *o = NULL;
        if (is_long)
            o = find_option(u->groups, u->n_groups, arg + 2, len, 0, &g);
        else if (arg[0] == '-' && arg[1])
            o = find_option(u->groups, u->n_groups, NULL, 0, arg[1], &g);
        if (o && strcmp(o->name, name) == 0) return true;
        if (o && o->kind != QP_OPT_FLAG && !(is_long && arg[2 + len] == '=')) i++; /* its value */
    }
    return false;
}

/* Prints text wrapped at HELP_WIDTH with `indent` spaces before every line but the first. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)word > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        fwrite(text, 1, word, stdout);
        column += (int)word;
        text += word;
        while (*text == ' ' || *text == '\n') {
            if (*text++ == '\n') {
                printf("\n%*s", indent, "");
                column = indent;
            }
        }
    }
    putchar('\n');
}

static void print_option(const qp_opt *o)
{
    char left[160], right[1024], list[256];
    int n = o->short_name ? snprintf(left, sizeof left, "  -%c, --%s", o->short_name, o->name)
                          : snprintf(left, sizeof left, "  --%s", o->name);
    if (o->kind == QP_OPT_CHOICE)
        n += snprintf(left + n, sizeof left - (size_t)n, " {%s}", o->value);
    else if (o->kind != QP_OPT_FLAG)
        n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->value);
    int m = snprintf(right, sizeof right, "%s", o->help);
    if (o->refused && m < (int)sizeof right) {
        choices_text(o->refused, list, sizeof list);
        m += snprintf(right + m, sizeof right - (size_t)m, " (not in this version: %s)", list);
    }
    if (o->fallback && o->fallback[0] && m < (int)sizeof right)
        snprintf(right + m, sizeof right - (size_t)m, " [%s]", o->fallback);
    fputs(left, stdout);
    if (n + 2 > HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - n, "");
    print_wrapped(right, HELP_COLUMN);
}

void qp_usage_print(const qp_usage *u)
{
    printf("quantpack %s: %s\n\nusage: quantpack %s %s\n", u->command, u->summary, u->command, u->arguments);
    if (u->description) {
        putchar('\n');
        print_wrapped(u->description, 0);
    }
    for (size_t g = 0; g < u->n_groups; g++) {
        printf("\n%s:\n", u->groups[g].title);
        for (size_t i = 0; i < u->groups[g].n_opts; i++) print_option(&u->groups[g].opts[i]);
    }
    printf("\n  -h, --help%*sthis text\n", HELP_COLUMN - 12, "");
    if (u->examples) printf("\nexamples:\n%s", u->examples);
    printf("\nexit codes: 0 done, 1 failed, 2 usage, 130 interrupted\n");
}
