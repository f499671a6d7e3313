/* How busy this machine is with what is not ours, while something is measured. */
#ifndef MOTLEY_JOB_LOAD_H
#define MOTLEY_JOB_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * CPU seconds since some beginning: of all programs and of what runs below this machine (stolen
 * time), and ours, ended ranks included.
 */
typedef struct MotLoad {
    int64_t at_ns;
    double all, own;
    bool is_known; /* the system tells */
} MotLoad;

MotLoad mot_load_now(void);
/* Cores that others kept busy on average from `from` to `to`; 0 where it is not known. */
double mot_load_others(const MotLoad *from, const MotLoad *to);
/* The first line of /proc/stat in ticks: everything but idle. False if it is none. */
bool mot_load_parse(const char *line, double *out_ticks);

#endif
