/* What happens when another program shortens a file that this one has mapped. */
#ifndef MOTLEY_CLI_CUTOFF_H
#define MOTLEY_CLI_CUTOFF_H

/*
 * From now on, reading beyond the new end of a mapped file (support/file.h) ends the process with a
 * message that names the file and the exit code of corrupt data. Ranks inherit it. A SIGBUS of any
 * other origin kills as it always does.
 */
void mot_cutoff_watch(void);

#endif
