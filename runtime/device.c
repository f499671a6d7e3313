/* The list of device backends. */
#include "runtime/device.h"

#include <string.h>

static const MotDeviceApi *const devices[] = {&mot_device_ref, &mot_device_cpu};

const MotDeviceApi *mot_device_find(const char *name)
{
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (strcmp(devices[i]->name, name) == 0)
            return devices[i];
    return NULL;
}
