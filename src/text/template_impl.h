/* Inside of the chat template engine: values, syntax tree, render state. Included by src/text/template*.c alone.
 *
 * How it fits together: template_lex.c cuts the source into tokens, template_parse.c (statements) and template_expr.c
 * (expressions) build the tree, template_exec.c and template_eval.c walk it. Values are 16 bytes and immutable, but for
 * namespaces, iterators, cyclers and joiners. All memory of a render comes from one arena with a limit; text under
 * construction (output, macro results, every string that is built piece by piece) is a stack in one buffer.
 *
 * Invariants: every recursion over the tree, over calls and over nested values counts in qp_trun.nest or carries a
 * depth; every loop over data charges qp_t_step. A function that returns bool returns false after qp_t_fail and leaves
 * its out-parameters unspecified. Trees and their strings are not written after parsing: renders of several threads
 * share them. */
#ifndef QP_TEXT_TEMPLATE_IMPL_H
#define QP_TEXT_TEMPLATE_IMPL_H

#include "base/arena.h"
#include "base/buf.h"
#include "text/template.h"

#define QP_T_MAX_SOURCE ((size_t)4 << 20)
#define QP_T_MAX_NAME 1024 /* bytes of an identifier */
#define QP_T_MAX_BLOCKS 1000
#define QP_T_MAX_TREE ((size_t)256 << 20) /* bytes of a template's arena */
#define QP_T_MAX_PARSE_DEPTH 150          /* nested brackets and statements */
#define QP_T_MAX_VALUE_DEPTH 200          /* nesting that repr, tojson, == and < follow */
#define QP_T_MAX_NEST 1200                /* nested evaluations; frames of all kinds, bounds the C stack */
#define QP_T_MAX_ARGS 6                   /* bound parameters of a built-in */
#define QP_T_MAX_RANGE 100000

typedef struct qp_trun qp_trun;
typedef struct qp_tnode qp_tnode;
typedef struct qp_tscope qp_tscope;

/* Text: UTF-8, not NUL-terminated. */
typedef struct qp_tstr {
    const char *p;
    size_t n;      /* bytes */
    size_t ncp;    /* code points; SIZE_MAX: not counted yet (never in a template's own strings) */
    uint64_t hash; /* 0: not computed yet (never in a template's own strings) */
    bool markup;   /* made by |safe or |e: + escapes the other side */
} qp_tstr;

typedef enum qp_tkind {
    QP_V_MISSING, /* no value: an absent argument */
    QP_V_UNDEF,
    QP_V_NONE,
    QP_V_BOOL,
    QP_V_INT,
    QP_V_BIG, /* an integer literal beyond 64 bits: prints and compares, nothing else */
    QP_V_FLOAT,
    QP_V_STR,
    QP_V_BYTES,
    QP_V_LIST,
    QP_V_TUPLE,
    QP_V_DICT,
    QP_V_NS,
    QP_V_RANGE,
    QP_V_VIEW, /* dict.keys(), .values(), .items() */
    QP_V_ITER, /* generators: lazy, one pass */
    QP_V_FUNC, /* global function or bound method */
    QP_V_MACRO,
    QP_V_LOOP,
    QP_V_CYCLER,
    QP_V_JOINER,
    QP_V_SELF
} qp_tkind;

typedef struct qp_tundef {
    qp_template_error error; /* undefined or security: what using it raises */
    const char *message;     /* of that error */
} qp_tundef;

typedef struct qp_tlist qp_tlist;
typedef struct qp_tdict qp_tdict;
typedef struct qp_titer qp_titer;
typedef struct qp_tfunc qp_tfunc;
typedef struct qp_tmacro qp_tmacro;
typedef struct qp_tloop qp_tloop;
typedef struct qp_tcycler qp_tcycler;
typedef struct qp_trange qp_trange;
typedef struct qp_tview qp_tview;

typedef struct qp_tv {
    qp_tkind kind;
    union {
        bool b;
        int64_t i;
        double f;
        qp_tstr *s;         /* STR, BYTES, BIG (digits, perhaps with a sign) */
        const qp_tundef *u; /* UNDEF */
        qp_tlist *l;        /* LIST, TUPLE */
        qp_tdict *d;        /* DICT, NS */
        qp_trange *range;
        qp_tview *view;
        qp_titer *it;
        qp_tfunc *fn;
        qp_tmacro *macro;
        qp_tloop *loop;
        qp_tcycler *cycler; /* CYCLER, JOINER */
    } as;
} qp_tv;

struct qp_tlist {
    qp_tv *v;
    size_t n;
    bool group; /* a groupby pair: has .grouper and .list */
};

typedef struct qp_tpair {
    qp_tv key, val;
    uint64_t hash;
} qp_tpair;

struct qp_tdict {
    qp_tpair *v; /* in insertion order */
    size_t n, cap;
    uint32_t *index; /* open addressing over v, entry + 1; NULL while small */
    size_t n_index;  /* power of two */
};

struct qp_trange {
    int64_t start, stop, step;
    size_t n;
};

struct qp_tview {
    qp_tdict *d;
    char which; /* 'k', 'v', 'i' */
};

typedef struct qp_tcall {
    qp_tv *v;
    size_t n;
    qp_tpair *kw; /* keys are strings */
    size_t n_kw;
} qp_tcall;

/* A built-in. a: the arguments bound to params, QP_V_MISSING where absent; c: the call as written. */
typedef bool (*qp_tfn)(qp_trun *r, qp_tv self, qp_tv *a, const qp_tcall *c, qp_tv *out);

typedef struct qp_tentry {
    const char *name;
    qp_tfn fn;
    const char *params; /* comma-separated names; "*": fn reads the call itself */
    unsigned n_required;
} qp_tentry;

struct qp_tfunc {
    const qp_tentry *entry;
    qp_tv self;
};

typedef bool (*qp_tnext)(qp_trun *r, qp_titer *it, qp_tv *out, bool *done);

struct qp_titer {
    qp_tnext next;
    qp_tv over;             /* the value that is walked */
    size_t pos;             /* index or byte offset */
    qp_titer *src;          /* of a derived iterator */
    const qp_tentry *entry; /* filter or test applied to each item */
    qp_tcall call;          /* its arguments */
    qp_tv extra, extra2;
    bool negate, by_attr, ended;
    const qp_tnode *node; /* loop filter */
    qp_tscope *scope;
};

struct qp_tcycler {
    qp_tv *v;
    size_t n, pos;
};

typedef struct qp_tvar {
    const qp_tstr *name; /* interned in the template: compared by address */
    qp_tv v;
} qp_tvar;

struct qp_tscope {
    qp_tscope *up;
    qp_tvar *vars;
    size_t n, cap;
};

struct qp_tmacro {
    const qp_tnode *node;
    qp_tscope *scope; /* where it was defined */
};

struct qp_tloop {
    const qp_tnode *node;
    qp_tscope *scope; /* of the for statement */
    qp_titer *it;
    qp_tv cur, prev, ahead; /* ahead: MISSING when not read yet */
    qp_tv changed;
    size_t index0;
    unsigned depth0;
    bool at_end;  /* the iterator gave everything */
    bool counted; /* length is known, it reads what was left from a list */
    size_t length;
};

typedef enum qp_tnodekind {
    QP_N_CONST,
    QP_N_NAME,
    QP_N_TUPLE,
    QP_N_LIST,
    QP_N_DICT,  /* kids: key, value, key, value... */
    QP_N_CHAIN, /* a: base; kids: ATTR, ITEM, SLICE, CALL, FILTER, TEST, applied in turn */
    QP_N_ATTR,
    QP_N_ITEM,
    QP_N_SLICE,  /* a, b, c: bounds and step, or NULL */
    QP_N_CALL,   /* kids: ARG */
    QP_N_FILTER, /* entry, or NULL when unknown; kids: ARG */
    QP_N_TEST,   /* as FILTER; flag: negated */
    QP_N_ARG,    /* a: value; name: keyword; op: 0, '*' or 'k' (**) */
    QP_N_BINARY, /* a: first operand; kids: OPERAND */
    QP_N_COMPARE,
    QP_N_OPERAND, /* op, a */
    QP_N_AND,     /* kids */
    QP_N_OR,
    QP_N_CONCAT,
    QP_N_NOT,
    QP_N_NEG,
    QP_N_POS,
    QP_N_COND, /* a: test; b: then; c: else or NULL */
    /* statements */
    QP_N_TEXT,        /* val */
    QP_N_PRINT,       /* a */
    QP_N_IF,          /* kids: BRANCH; a: else body (BODY) or NULL */
    QP_N_BRANCH,      /* a: test; kids: body */
    QP_N_BODY,        /* kids */
    QP_N_FOR,         /* a: target; b: iterable; c: filter or NULL; kids: body; body2: else; flag: recursive */
    QP_N_SET,         /* a: target; b: value */
    QP_N_SETBLOCK,    /* a: target; b: CHAIN of filters without base, or NULL; kids: body */
    QP_N_NSREF,       /* target ns.attr: name; c: ATTR with the attribute's name */
    QP_N_MACRO,       /* name; a: BODY of PARAM; kids: body; op: bits USES_* */
    QP_N_PARAM,       /* name; a: default or NULL */
    QP_N_CALLBLOCK,   /* a: CHAIN ending in CALL; b: MACRO of the caller */
    QP_N_FILTERBLOCK, /* b: CHAIN of filters; kids: body */
    QP_N_WITH,        /* a: BODY of SET; kids: body */
    QP_N_BLOCK,       /* kids: body; name */
    QP_N_BREAK,
    QP_N_CONTINUE,
    QP_N_NOLOADER /* include, import, extends: fails when reached */
} qp_tnodekind;

enum { QP_T_USES_VARARGS = 1, QP_T_USES_KWARGS = 2, QP_T_USES_CALLER = 4 };

struct qp_tnode {
    uint8_t kind, op;
    bool flag;
    uint32_t line;
    uint32_t n_kids;
    const qp_tstr *name;
    const qp_tentry *entry;
    qp_tv val;
    qp_tnode *a, *b, *c, *body2;
    qp_tnode *kids, *last, *next;
};

struct qp_template {
    qp_arena arena;
    qp_tnode *body;
    qp_tstr **names; /* interned; the first ones are the well-known names below */
    size_t n_names, cap_names;
    uint32_t *name_index;
    size_t n_name_index;
    bool wants_parts;
};

/* Names that the engine looks up itself, interned first in every template. */
enum { QP_T_NAME_LOOP, QP_T_NAME_CALLER, QP_T_NAME_VARARGS, QP_T_NAME_KWARGS, QP_T_NAME_SELF, QP_T_N_KNOWN };

struct qp_trun {
    const qp_template *t;
    qp_arena arena;
    qp_buf buf; /* stack of text under construction; the output is at its bottom */
    qp_tdict *context;
    qp_tscope *top;
    int64_t now;
    uint64_t steps, max_steps;
    unsigned depth, max_depth; /* calls */
    unsigned nest;             /* evaluation frames */
    qp_template_error kind;
    qp_err *err;
};

/* ---- tokens (template_lex.c) ---- */
typedef enum qp_ttok {
    QP_TOK_EOF,
    QP_TOK_DATA,
    QP_TOK_VAR_BEGIN,
    QP_TOK_VAR_END,
    QP_TOK_BLOCK_BEGIN,
    QP_TOK_BLOCK_END,
    QP_TOK_NAME,
    QP_TOK_STRING,
    QP_TOK_INT,
    QP_TOK_FLOAT,
    QP_TOK_OP
} qp_ttok;

typedef struct qp_ttoken {
    qp_ttok type;
    uint32_t line;
    uint16_t op; /* of QP_TOK_OP: its character, or first + second * 256 */
    const char *p;
    size_t n; /* spelling, in the normalized source; a string's includes its quotes */
} qp_ttoken;

typedef struct qp_tparser {
    qp_template *t;
    qp_arena scratch; /* what only the parser needs */
    qp_err *err;
    qp_template_error kind;
    const char *src; /* normalized copy in the template's arena */
    size_t n;
    size_t pos; /* of the lexer */
    uint32_t line;
    unsigned state;     /* of the lexer: text, in {{ }}, in {% %} */
    bool line_starting; /* the last match ended in a newline */
    char *stack;        /* open brackets, closing characters */
    size_t n_stack, cap_stack;
    qp_ttoken *tok; /* all tokens, ended by EOF */
    size_t n_tok, cap_tok, at;
    unsigned depth;
    unsigned loops;    /* enclosing loops that break may leave */
    qp_tnode **macros; /* enclosing macros, for USES_* */
    size_t n_macros, cap_macros;
    qp_tnode **unknown; /* filters and tests that do not exist and are not excused */
    size_t n_unknown, cap_unknown;
    const qp_tstr **content_names; /* set from a message's content */
    size_t n_content_names, cap_content_names;
    qp_tnode **blocks;
    size_t n_blocks, cap_blocks;
} qp_tparser;

bool qp_t_lex(qp_tparser *ps); /* src -> tok */

/* Fails with a syntax error (or another kind); always returns false. */
bool qp_t_syntax(qp_tparser *ps, uint32_t line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool qp_t_parse_oom(qp_tparser *ps);
bool qp_t_parse_limit(qp_tparser *ps, uint32_t line, const char *what);
/* Grows an array in the parser's scratch arena so that one more element fits. array: address of its pointer. */
bool qp_t_grow(qp_tparser *ps, void *array, size_t n, size_t *cap, size_t elem);
const qp_tstr *qp_t_intern(qp_tparser *ps, const char *p, size_t n); /* NULL after failing */
qp_tnode *qp_t_node(qp_tparser *ps, qp_tnodekind kind);              /* NULL after failing */
void qp_t_add_kid(qp_tnode *parent, qp_tnode *kid);

/* ---- parsing ---- */
const qp_ttoken *qp_t_cur(const qp_tparser *ps);
const qp_ttoken *qp_t_look(const qp_tparser *ps);
void qp_t_next(qp_tparser *ps);
bool qp_t_is_op(const qp_ttoken *k, unsigned op);
bool qp_t_is_name(const qp_ttoken *k, const char *name);
bool qp_t_skip_op(qp_tparser *ps, unsigned op); /* consumes it if it is there */
bool qp_t_skip_name(qp_tparser *ps, const char *name);
bool qp_t_expect_op(qp_tparser *ps, unsigned op);
bool qp_t_unexpected(qp_tparser *ps, const char *wanted); /* fails, naming the current token */
bool qp_t_enter(qp_tparser *ps);                          /* one nesting level more, or fails */

bool qp_t_parse_expression(qp_tparser *ps, bool with_cond, qp_tnode **out);
/* end_name: a keyword that ends the tuple as well, or NULL. */
bool qp_t_parse_tuple(qp_tparser *ps, bool with_cond, const char *end_name, bool explicit_parens, qp_tnode **out);
bool qp_t_parse_postfix_expr(qp_tparser *ps, qp_tnode **out); /* unary, with filters: the callee of {% call %} */
/* Reads "|f|g(...)" or, if inline_first, "f(...)|g" into a CHAIN without base; *out stays NULL when there is none. */
bool qp_t_parse_filters(qp_tparser *ps, bool inline_first, qp_tnode **out);
bool qp_t_parse_template(qp_tparser *ps);

/* ---- render: failures, memory, steps (template_value.c) ---- */
bool qp_t_fail(qp_trun *r, qp_template_error kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool qp_t_limit(qp_trun *r, const char *what);
bool qp_t_alloc(qp_trun *r, size_t n, size_t size, void *out); /* zeroed; out: address of a pointer */
bool qp_t_out_of_steps(qp_trun *r);

static inline bool qp_t_step(qp_trun *r, uint64_t n)
{
    r->steps += n;
    return r->steps <= r->max_steps ? true : qp_t_out_of_steps(r);
}

/* Charges for a pass over n bytes. */
static inline bool qp_t_step_bytes(qp_trun *r, size_t n)
{
    return qp_t_step(r, 1 + n / 16);
}

/* ---- text under construction ---- */
bool qp_t_put(qp_trun *r, const char *p, size_t n);
bool qp_t_putz(qp_trun *r, const char *s);
bool qp_t_put_cp(qp_trun *r, int32_t cp);
bool qp_t_put_repeat(qp_trun *r, const char *p, size_t n, size_t times);
bool qp_t_put_str(qp_trun *r, qp_tv v);                  /* str(v) */
bool qp_t_put_repr(qp_trun *r, qp_tv v, unsigned depth); /* repr(v) */
bool qp_t_take(qp_trun *r, size_t mark, qp_tv *out);     /* cuts what was put since mark = r->buf.len into a string */
bool qp_t_put_escaped(qp_trun *r, const char *p, size_t n); /* HTML entities */
void qp_t_float_repr(double f, char out[40]);
bool qp_t_tojson(qp_trun *r, qp_tv *a, qp_tv v, qp_tv *out); /* a: ensure_ascii, indent, separators, sort_keys */
bool qp_t_percent(qp_trun *r, qp_tv fmt, qp_tv args, qp_tv *out);
bool qp_t_str_format(qp_trun *r, qp_tv self, const qp_tcall *c, qp_tv *out);

/* ---- values ---- */
static inline qp_tv qp_t_none(void)
{
    return (qp_tv){QP_V_NONE, {0}};
}

static inline qp_tv qp_t_missing(void)
{
    return (qp_tv){QP_V_MISSING, {0}};
}

static inline qp_tv qp_t_bool(bool b)
{
    return (qp_tv){QP_V_BOOL, {.b = b}};
}

static inline qp_tv qp_t_int(int64_t i)
{
    return (qp_tv){QP_V_INT, {.i = i}};
}

static inline qp_tv qp_t_float(double f)
{
    return (qp_tv){QP_V_FLOAT, {.f = f}};
}

static inline bool qp_t_is_seq(qp_tv v)
{
    return v.kind == QP_V_LIST || v.kind == QP_V_TUPLE;
}

/* int or bool, as Python's int sees it. */
static inline bool qp_t_as_int(qp_tv v, int64_t *out)
{
    if (v.kind != QP_V_INT && v.kind != QP_V_BOOL) return false;
    *out = v.kind == QP_V_INT ? v.as.i : v.as.b;
    return true;
}

size_t qp_t_count_cp(const char *p, size_t n);
size_t qp_t_next_cp(const char *p, size_t n, int32_t *cp); /* length; invalid bytes read as U+FFFD */
bool qp_t_is_space(int32_t cp);                            /* as str.isspace */
uint64_t qp_t_hash_bytes(const char *p, size_t n);
/* First place of the n bytes q in p; SIZE_MAX when absent or when the steps ran out (then r->kind is set). */
size_t qp_t_find_bytes(qp_trun *r, const char *p, size_t np, const char *q, size_t n);
size_t qp_t_ncp(qp_tstr *s);
size_t qp_t_offset(qp_tstr *s, size_t cp_index); /* byte offset of a code point */

bool qp_t_new_str(qp_trun *r, const char *p, size_t n, qp_tv *out);         /* copies */
bool qp_t_borrow_str(qp_trun *r, const char *p, size_t n, qp_tv *out);      /* p outlives the render */
bool qp_t_sub_str(qp_trun *r, qp_tv s, size_t from, size_t to, qp_tv *out); /* byte offsets; shares, keeps markup */
bool qp_t_str_of(qp_trun *r, qp_tv v, qp_tv *out);                          /* str(v) as a plain string */
bool qp_t_soft_str(qp_trun *r, qp_tv v, qp_tv *out);                        /* a string stays itself, markup and all */
bool qp_t_new_undef(qp_trun *r, qp_template_error kind, qp_tv *out, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool qp_t_use_undef(qp_trun *r, qp_tv v);                            /* fails with its message */
bool qp_t_new_list(qp_trun *r, qp_tkind kind, size_t n, qp_tv *out); /* n elements, MISSING */
bool qp_t_new_dict(qp_trun *r, qp_tkind kind, qp_tv *out);
bool qp_t_hash(qp_trun *r, qp_tv v, uint64_t *out, unsigned depth);
bool qp_t_dict_find(qp_trun *r, qp_tdict *d, qp_tv key, qp_tv **out); /* *out NULL: absent; fails on unhashable */
qp_tv *qp_t_dict_find_str(qp_tdict *d, const qp_tstr *s);
bool qp_t_dict_set(qp_trun *r, qp_tdict *d, qp_tv key, qp_tv val);
bool qp_t_from_json(qp_trun *r, const json_t *j, qp_tv *out, unsigned depth);

/* A list that grows while it is filled. */
typedef struct qp_tvec {
    qp_tv *v;
    size_t n, cap;
} qp_tvec;
bool qp_t_push(qp_trun *r, qp_tvec *vec, qp_tv v);
bool qp_t_vec_list(qp_trun *r, const qp_tvec *vec, qp_tv *out);

const char *qp_t_type_name(qp_tv v); /* as Python's type(v).__name__ */
bool qp_t_truth(qp_tv v);
bool qp_t_equal(qp_trun *r, qp_tv a, qp_tv b, bool *out, unsigned depth);
bool qp_t_less(qp_trun *r, qp_tv a, qp_tv b, const char *op, int *order, unsigned depth); /* order: <0, 0, >0, 2: nan */
bool qp_t_contains(qp_trun *r, qp_tv item, qp_tv in, bool *out);
bool qp_t_length(qp_trun *r, qp_tv v, size_t *out);
bool qp_t_callable(qp_tv v);

/* ---- strings shared by methods and filters ---- */
bool qp_t_strip(qp_trun *r, qp_tv s, qp_tv chars, bool left, bool right, qp_tv *out); /* chars: MISSING, NONE, text */
bool qp_t_splitlines(qp_trun *r, qp_tv s, bool keep, qp_tvec *vec);
bool qp_t_replace(qp_trun *r, qp_tv s, qp_tv from, qp_tv to, qp_tv count, qp_tv *out);
bool qp_t_center(qp_trun *r, qp_tv s, qp_tv width, qp_tv *out);
bool qp_t_all_case(qp_trun *r, qp_tv s, bool upper, bool *out); /* str.isupper, str.islower */

/* ---- operators and access (template_ops.c) ---- */
bool qp_t_binary(qp_trun *r, unsigned op, qp_tv a, qp_tv b, qp_tv *out); /* op: '+', '-', '*', '/', '%', "//", "**" */
bool qp_t_negate(qp_trun *r, qp_tv v, bool minus, qp_tv *out);
bool qp_t_getattr(qp_trun *r, qp_tv obj, const qp_tstr *name, qp_tv *out);
bool qp_t_getitem(qp_trun *r, qp_tv obj, qp_tv key, qp_tv *out);
/* Attribute alone (methods, namespace members): *out is MISSING when there is none. */
bool qp_t_attribute(qp_trun *r, qp_tv obj, const qp_tstr *name, qp_tv *out);
bool qp_t_slice(qp_trun *r, qp_tv obj, qp_tv from, qp_tv to, qp_tv step, qp_tv *out);
bool qp_t_sort(qp_trun *r, qp_tv *keys, qp_tv *vals, size_t n, bool reverse); /* stable, by keys */

/* ---- iteration (template_iter.c) ---- */
bool qp_t_iter(qp_trun *r, qp_tv v, qp_titer **out); /* iter(v) */
bool qp_t_iter_next(qp_trun *r, qp_titer *it, qp_tv *out, bool *done);
bool qp_t_iter_rest(qp_trun *r, qp_titer *it, qp_tvec *out);
bool qp_t_to_list(qp_trun *r, qp_tv v, qp_tv *out);            /* list(v); a list or tuple may be returned as it is */
bool qp_t_reversed(qp_trun *r, qp_tv v, bool *ok, qp_tv *out); /* *ok false: not reversible */
bool qp_t_list_iter(qp_trun *r, qp_tv list, qp_tv *out);       /* a one-pass iterator value over a list */
bool qp_t_path_get(qp_trun *r, qp_tv item, qp_tv path, qp_tv deflt, qp_tv *out); /* "a.b.0" */

/* ---- calls ---- */
bool qp_t_bind(qp_trun *r, const qp_tentry *e, const qp_tcall *c, qp_tv *a);
bool qp_t_apply(qp_trun *r, const qp_tentry *e, qp_tv self, const qp_tcall *c, qp_tv *out); /* bind and run */
bool qp_t_call(qp_trun *r, qp_tv f, const qp_tcall *c, qp_tv *out);
bool qp_t_call_macro(qp_trun *r, qp_tmacro *m, const qp_tcall *c, qp_tv *out);
bool qp_t_call_loop(qp_trun *r, qp_tloop *l, const qp_tcall *c, qp_tv *out);

const qp_tentry *qp_t_find_filter(const char *name, size_t n);
const qp_tentry *qp_t_find_test(const char *name, size_t n);
const qp_tentry *qp_t_find_global(const char *name, size_t n);
const qp_tentry *qp_t_find_method(qp_tkind kind, const char *name, size_t n);
const qp_tentry *qp_t_find_entry(const qp_tentry *table, size_t n_table, const char *name, size_t n);
bool qp_t_is_mutator(qp_tkind kind, const char *name, size_t n);                      /* refused by the sandbox */
bool qp_t_loop_attr(qp_trun *r, qp_tloop *l, const char *name, size_t n, qp_tv *out); /* MISSING: none */
bool qp_t_check_ns_name(qp_trun *r, const qp_tstr *name); /* namespaces refuse names with a leading underscore */
extern const qp_tentry qp_t_filters_text[], qp_t_filters_seq[], qp_t_str_methods[], qp_t_str_methods2[];
extern const size_t qp_t_n_filters_text, qp_t_n_filters_seq, qp_t_n_str_methods, qp_t_n_str_methods2;

/* ---- evaluation ---- */
typedef enum qp_tflow { QP_FLOW_FAIL, QP_FLOW_OK, QP_FLOW_BREAK, QP_FLOW_CONTINUE } qp_tflow;
bool qp_t_eval(qp_trun *r, const qp_tnode *n, qp_tscope *sc, qp_tv *out);
bool qp_t_eval_args(qp_trun *r, const qp_tnode *call, qp_tscope *sc, qp_tcall *out);
/* Applies the operations of a CHAIN to v. */
bool qp_t_eval_chain(qp_trun *r, const qp_tnode *chain, qp_tscope *sc, qp_tv v, qp_tv *out);
qp_tflow qp_t_exec(qp_trun *r, const qp_tnode *body, qp_tscope *sc); /* the kids of body */
bool qp_t_new_scope(qp_trun *r, qp_tscope *up, qp_tscope **out);
bool qp_t_set_var(qp_trun *r, qp_tscope *sc, const qp_tstr *name, qp_tv v);
bool qp_t_assign(qp_trun *r, const qp_tnode *target, qp_tscope *sc, qp_tv v);
bool qp_t_lookup(qp_trun *r, const qp_tstr *name, qp_tscope *sc, qp_tv *out);

/* ---- Unicode case (template_case.c) ---- */
typedef enum qp_tcase { QP_CASE_UPPER, QP_CASE_LOWER, QP_CASE_TITLE, QP_CASE_FOLD } qp_tcase;
bool qp_t_put_case(qp_trun *r, int32_t cp, qp_tcase to);             /* full mapping of one code point */
bool qp_t_put_lower(qp_trun *r, const char *p, size_t n, size_t at); /* lower of p[at], knowing final sigma */
bool qp_t_case(qp_trun *r, qp_tv s, qp_tcase to, qp_tv *out);        /* upper, lower, casefold of a string */
bool qp_t_capitalize(qp_trun *r, qp_tv s, qp_tv *out);
bool qp_t_is_upper_cp(int32_t cp);
bool qp_t_is_lower_cp(int32_t cp);
bool qp_t_is_title_cp(int32_t cp);
bool qp_t_is_alpha_cp(int32_t cp);
bool qp_t_is_decimal_cp(int32_t cp);
bool qp_t_is_digit_cp(int32_t cp);
bool qp_t_is_numeric_cp(int32_t cp);
bool qp_t_is_printable_cp(int32_t cp);
#endif
