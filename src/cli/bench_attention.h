/* quantpack bench attention. */
#ifndef QP_CLI_BENCH_ATTENTION_H
#define QP_CLI_BENCH_ATTENTION_H

/* argv[0] is "attention". Returns the program's exit code. */
int qp_bench_attention(int argc, char **argv);

#endif
