/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The GPUs of this process, by number.  Nothing here creates a context.
 */
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#include <stdio.h>
#include <string.h>

static int code_of(int rc)
{
    return GPUSYM_SUCCESS == rc ? OPAL_SUCCESS : GPUSYM_ERR_BAD_PARAM == rc ? OPAL_ERR_BAD_PARAM : OPAL_ERROR;
}

int accelerator_get_device(int *dev_id)
{
    const gpusym_device_t *dev = accelerator_device();

    *dev_id = NULL != dev ? dev->gpu_current() : -1;
    return *dev_id >= 0 ? OPAL_SUCCESS : OPAL_ERR_NOT_FOUND;
}

int accelerator_pci_attr(int dev_id, opal_accelerator_pci_attr_t *attr)
{
    const gpusym_device_t *dev = accelerator_device();
    unsigned domain, bus, device, function;
    gpusym_gpu_info_t info;
    int rc;

    if (NULL == dev) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    rc = dev->gpu_look(dev_id, &info);
    if (GPUSYM_SUCCESS != rc) {
        return code_of(rc);
    }
    if (4 != sscanf(info.place.pci, "%x:%x:%x.%x", &domain, &bus, &device, &function)) {
        return OPAL_ERR_NOT_FOUND; /* the simulator's */
    }
    attr->domain_id = (uint16_t) domain;
    attr->bus_id = (uint8_t) bus;
    attr->device_id = (uint8_t) device;
    attr->function_id = (uint8_t) function;
    return OPAL_SUCCESS;
}

int accelerator_can_access_peer(int *access, int from, int to)
{
    const gpusym_device_t *dev = accelerator_device();
    bool reaches = false;
    const int rc = NULL != dev ? dev->gpu_reaches(from, to, &reaches) : GPUSYM_ERR_NOT_AVAILABLE;

    *access = reaches ? 1 : 0;
    return code_of(rc);
}

int accelerator_num_devices(int *count)
{
    const gpusym_device_t *dev = accelerator_device();

    *count = 0;
    return NULL != dev ? code_of(dev->gpu_count(count)) : OPAL_SUCCESS;
}

int accelerator_mem_bw(int dev_id, float *gbs)
{
    const gpusym_device_t *dev = accelerator_device();
    gpusym_gpu_info_t info;
    const int rc = NULL != dev ? dev->gpu_look(dev_id, &info) : GPUSYM_ERR_NOT_AVAILABLE;

    *gbs = GPUSYM_SUCCESS == rc && 0 != info.gbs ? (float) info.gbs : 1.0f; /* Open MPI divides by it */
    return code_of(rc);
}

#if GPUSYM_ACCELERATOR_IPC
/* Open MPI frees the texts. */
void accelerator_memkind(ompi_memkind_t *memkind)
{
    static const char *const restrictors[] = {"host", "device", "managed"};

    memkind->im_name = strdup("cuda");
    memkind->im_no_restrictors = false;
    memkind->im_num_restrictors = 3;
    for (int i = 0; i < 3; i++) {
        memkind->im_restrictors[i] = strdup(restrictors[i]);
    }
}
#endif
