/* hide.c - the missing-symbol fault: takes one name out of this process's view of a loaded library, so that dlsym fails
 * as it does with a build that never had it. Only the private copy in memory changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"

static const void *dynamic_value(const struct link_map *map, Elf64_Sxword tag)
{
	for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return (const void *)d->d_un.d_ptr;
	return NULL;
}

void simrocm_hide_symbol(const void *address, const char *name)
{
	Dl_info info;
	struct link_map *map = NULL;
	if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
		return;
	Elf64_Sym *symbols = (Elf64_Sym *)(uintptr_t)dynamic_value(map, DT_SYMTAB);
	const char *strings = dynamic_value(map, DT_STRTAB);
	/* .dynstr follows .dynsym in what GNU ld writes, so it bounds the table. */
	if (symbols == NULL || strings == NULL || (const char *)symbols >= strings)
		return;
	long page = sysconf(_SC_PAGESIZE);
	for (Elf64_Sym *s = symbols; (const char *)(s + 1) <= strings; s++) {
		if (s->st_shndx == SHN_UNDEF || strcmp(strings + s->st_name, name) != 0)
			continue;
		uintptr_t first = (uintptr_t)s & ~(uintptr_t)(page - 1);
		size_t size = (uintptr_t)(s + 1) - first;
		if (mprotect((void *)first, size, PROT_READ | PROT_WRITE) != 0)
			return;
		s->st_value = 0;
		s->st_shndx = SHN_UNDEF;
		mprotect((void *)first, size, PROT_READ);
	}
}
