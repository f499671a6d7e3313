/* /proc/stat less getrusage. A tick is 10 ms: worth asking over a second and more. */
#include "job/load.h"

#include "runtime/shared.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Guests are in user and nice already. */
bool mot_load_parse(const char *line, double *out_ticks)
{
    unsigned long long user, nice, system, idle, wait, irq, soft_irq, stolen;
    if (sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
               &wait, &irq, &soft_irq, &stolen) != 8)
        return false;
    *out_ticks = (double)(user + nice + system + irq + soft_irq + stolen);
    return true;
}

static bool read_ticks(double *out_ticks)
{
    char line[256];
    FILE *file = fopen("/proc/stat", "r");
    bool is_read = file && fgets(line, sizeof line, file) && mot_load_parse(line, out_ticks);
    if (file)
        fclose(file);
    return is_read;
}

static double own_seconds(int who)
{
    struct rusage usage;
    if (getrusage(who, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

MotLoad mot_load_now(void)
{
    double ticks = 0;
    MotLoad load = {.at_ns = mot_now_ns(), .is_known = read_ticks(&ticks)};
    load.all = ticks / (double)sysconf(_SC_CLK_TCK);
    load.own = own_seconds(RUSAGE_SELF) + own_seconds(RUSAGE_CHILDREN);
    return load;
}

double mot_load_others(const MotLoad *from, const MotLoad *to)
{
    double seconds = (double)(to->at_ns - from->at_ns) * 1e-9;
    double others = (to->all - from->all) - (to->own - from->own);
    return from->is_known && to->is_known && seconds > 0 && others > 0 ? others / seconds : 0;
}
