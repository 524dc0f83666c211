/* quantpack bench linear: see bench_linear.c. */
#ifndef QP_CLI_BENCH_LINEAR_H
#define QP_CLI_BENCH_LINEAR_H

/* argv[0] is "linear". Returns the program's exit code. */
int qp_bench_linear(int argc, char **argv);

#endif
