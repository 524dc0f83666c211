/* Replays a corpus through a fuzz target: each argument is a file, or a folder of files. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t cap = 1 << 16, len = 0, n;
    uint8_t *data = malloc(cap);
    while (data && (n = fread(data + len, 1, cap - len, f)) > 0) {
        len += n;
        if (len == cap) data = realloc(data, cap *= 2);
    }
    fclose(f);
    if (!data) return 1;
    uint8_t *exact = malloc(len ? len : 1); /* so that a read past the end is seen */
    if (!exact) return 1;
    for (size_t i = 0; i < len; i++) exact[i] = data[i];
    free(data);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            if (replay(argv[i])) return 1;
            n++;
            continue;
        }
        for (struct dirent *e; (e = readdir(d));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (replay(path)) return 1;
            n++;
        }
        closedir(d);
    }
    printf("%zu inputs replayed\n", n);
    return n == 0;
}
