/* quantpack import: a GGUF file to a checkpoint folder. */
#ifndef QP_CLI_CMD_IMPORT_H
#define QP_CLI_CMD_IMPORT_H

/* argv[0] is "import". Returns the program's exit code. */
int qp_cmd_import(int argc, char **argv);
#endif
