/* The commands. Each takes its own arguments, argv[0] being the command's name, and returns the program's exit code.
 * cmd_import, cmd_template, bench_linear, bench_attention and bench_memory have headers of their own. */
#ifndef QP_CLI_CMD_H
#define QP_CLI_CMD_H

int qp_cmd_generate(int argc, char **argv);
int qp_cmd_chat(int argc, char **argv);
int qp_cmd_eval(int argc, char **argv);
int qp_cmd_inspect(int argc, char **argv);
int qp_cmd_plan(int argc, char **argv);
int qp_cmd_tokenize(int argc, char **argv);
int qp_cmd_bench(int argc, char **argv);
int qp_bench_model(int argc, char **argv);

#endif
