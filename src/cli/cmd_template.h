/* quantpack template: renders a chat template file with variables from a JSON file. */
#ifndef QP_CLI_CMD_TEMPLATE_H
#define QP_CLI_CMD_TEMPLATE_H

/* argv[0] is "template". Text goes to stdout, messages to stderr. Returns the program's exit code: 1 when the template
 * or a file is at fault, 2 for wrong usage. */
int qp_cmd_template(int argc, char **argv);
#endif
