/* Command-line options: one declarative table for parsing, checking, defaults and help, so that no option can exist
 * without a help text and no default can differ from what the help says.
 *
 * An option is written `--name value` or `--name=value`; options and positional arguments mix freely, and `--` ends the
 * options. The last of several equal options wins. Errors go to stderr with the nearest known name. */
#ifndef QP_CLI_OPTIONS_H
#define QP_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of the program. */
enum {
    QP_EXIT_OK = 0,
    QP_EXIT_FAILURE = 1,      /* what was asked for could not be done; stderr says why */
    QP_EXIT_USAGE = 2,        /* the command line makes no sense; nothing was done */
    QP_EXIT_INTERRUPTED = 130 /* Ctrl-C; term.h has the codes of other signals */
};

typedef enum qp_opt_kind {
    QP_OPT_FLAG,  /* bool; takes no value */
    QP_OPT_U32,   /* uint32_t in [lo, hi] */
    QP_OPT_U64,   /* uint64_t in [lo, hi] */
    QP_OPT_I32,   /* int32_t in [lo, hi] */
    QP_OPT_FLOAT, /* double in [lo, hi] */
    QP_OPT_STR,   /* const char *, borrowed from argv */
    QP_OPT_CHOICE /* int: index of the value in `value`, "auto|fp32|fp16" */
} qp_opt_kind;

typedef struct qp_opt {
    const char *name; /* without dashes */
    char short_name;  /* 'p' for -p, or 0 */
    qp_opt_kind kind;
    const char *value; /* placeholder for the help ("N", "FILE"), or the choices */
    size_t offset;     /* of the field in the args struct */
    double lo, hi;     /* range of numbers; both 0: any of the type */
    const char
        *fallback; /* default as text, parsed like a given value; NULL: the field keeps what the caller put there */
    const char *help;
    const char *refused; /* choice: values of other versions, refused by name ("fp8|nvfp4"), or NULL */
} qp_opt;

/* Options that fill one struct. */
typedef struct qp_opt_group {
    const char *title; /* heading in the help */
    const qp_opt *opts;
    size_t n_opts;
    void *args; /* the struct that offsets refer to */
} qp_opt_group;

typedef struct qp_usage {
    const char *command;     /* "generate", or "bench model" */
    const char *arguments;   /* "MODEL (-p TEXT | ...) [options]" */
    const char *summary;     /* one line */
    const char *description; /* paragraphs, or NULL */
    const char *examples;    /* lines, or NULL */
    size_t min_positional, max_positional;
    const qp_opt_group *groups;
    size_t n_groups;
} qp_usage;

enum { QP_MAX_POSITIONAL = 8 };

/* Sets defaults, then reads argv[1 .. argc). argv[0] is not looked at. Positional arguments go to positional
 * [QP_MAX_POSITIONAL], borrowed from argv, the rest of which is NULL; *n_positional may be NULL. Returns true when the
 * command should run; otherwise *exit_code is QP_EXIT_OK (help was printed on stdout) or QP_EXIT_USAGE (stderr says
 * why). */
bool qp_options_parse(const qp_usage *u, int argc, char **argv, const char **positional, size_t *n_positional,
                      int *exit_code);

/* Whether argv, which qp_options_parse accepted, holds the option of this name. */
bool qp_option_given(const qp_usage *u, int argc, char **argv, const char *name);

/* Prints a usage error of a command, "quantpack generate: <message>" and where the help is. Returns QP_EXIT_USAGE. */
int qp_usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints the help of a command on stdout. */
void qp_usage_print(const qp_usage *u);

/* The word of words[n] nearest to s by edit distance (transpositions count one), or NULL when none is near. */
const char *qp_nearest(const char *s, const char *const *words, size_t n);

/* Reads a whole number in [lo, hi] / a finite number in [lo, hi]; false when text is anything else. */
bool qp_parse_u64(const char *text, uint64_t lo, uint64_t hi, uint64_t *out);
bool qp_parse_f64(const char *text, double lo, double hi, double *out);

/* Sets one option of the group from text as the parser would, for /set in chat. Returns false and writes what is wrong,
 * without a newline, to msg[cap]. */
bool qp_option_set(const qp_opt_group *g, const char *name, const char *text, char *msg, size_t cap);

#endif
