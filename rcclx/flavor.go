package rcclx

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// Symbols and literals that tell the flavors apart. ncclGetVersion cannot: it answers 22803 both for RCCLX and for
// AMD's 2.28.3. The literals survive the compiler, because RCCL_PARAM joins "RCCL_" and the name when it compiles
// (rccl src/include/param.h).
const (
	SymbolSimulatorVersion  = "simrocmVersion"
	SymbolSimulatorImitates = "simrocmImitates"
	// symbolShardedRelay is exported by torchcomms comms/rcclx/develop only.
	symbolShardedRelay = "ncclShardedRelayMultiGroupAllReduce"

	literalDevInit      = "RCCL_LOW_PRECISION_ENABLE_INIT" // meta/lpcoll/low_precision_common.h, develop only
	literalDevAllGather = "DDA_ALL_GATHER_MAX_BYTES"       // meta/algorithms/AlgoInit.h, develop only
	literalMetaDDA      = "RCCL_ENABLE_DDA_ALL_REDUCE"     // meta/algorithms/AlgoInit.h, develop and stable
	literalMetaFP8      = "RCCL_LOW_PRECISION_ENABLE"      // meta/lpcoll/low_precision_common.h, develop and stable
	literalAMDDDA       = "RCCL_DDA_ENABLE"                // rocm-systems projects/rccl src/rccl_wrap.cc, 2.30 and up
	// prefixRCCL begins the name of every variable that RCCL_PARAM reads; NVIDIA's library has none.
	prefixRCCL = "RCCL_"
	prefixNCCL = "NCCL_"
)

// Literals are the tell-tale strings found in a library's file.
type Literals struct {
	DevInit, DevAllGather, MetaDDA, MetaFP8, AMDDDA, RCCL, NCCL bool
}

// needle is one string to look for; whole ones must be followed by a NUL, so that RCCL_LOW_PRECISION_ENABLE is not
// found in RCCL_LOW_PRECISION_ENABLE_INIT, nor RCCL_DDA_ENABLE in a sentence that speaks of it.
type needle struct {
	text []byte
	set  *bool
}

func (l *Literals) needles() []needle {
	whole := func(s string) []byte { return append([]byte(s), 0) }
	return []needle{
		{whole(literalDevInit), &l.DevInit},
		{whole(literalDevAllGather), &l.DevAllGather},
		{whole(literalMetaDDA), &l.MetaDDA},
		{whole(literalMetaFP8), &l.MetaFP8},
		{whole(literalAMDDDA), &l.AMDDDA},
		{[]byte(prefixRCCL), &l.RCCL},
		{[]byte(prefixNCCL), &l.NCCL},
	}
}

// scanChunkBytes is how much of a file is held at a time.
const scanChunkBytes = 1 << 20

// ScanLiterals reads r to its end and notes which literals it holds.
func ScanLiterals(r io.Reader) (Literals, error) { return scanLiterals(r, scanChunkBytes) }

func scanLiterals(r io.Reader, chunkBytes int) (Literals, error) {
	var found Literals
	needles := found.needles()
	overlap := 0
	for _, n := range needles {
		overlap = max(overlap, len(n.text)-1)
	}
	buffer := make([]byte, 0, overlap+chunkBytes)
	for {
		// The tail of the last chunk stays, so that a literal across the border is seen.
		if len(buffer) > overlap {
			buffer = buffer[:copy(buffer, buffer[len(buffer)-overlap:])]
		}
		n, err := r.Read(buffer[len(buffer):min(len(buffer)+chunkBytes, cap(buffer))])
		buffer = buffer[:len(buffer)+n]
		for _, needle := range needles {
			if !*needle.set && bytes.Contains(buffer, needle.text) {
				*needle.set = true
			}
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}

// ScanLibraryFile notes which literals a library's file holds. Of an ELF file only the read-only data is read, since a
// library carries up to a gigabyte of GPU code beside it; any other file is read whole.
func ScanLibraryFile(file io.ReaderAt, sizeBytes int64) (Literals, error) {
	var found Literals
	if image, err := elf.NewFile(file); err == nil {
		for _, section := range image.Sections {
			if section.Type != elf.SHT_PROGBITS || (section.Name != ".rodata" && section.Name != ".data.rel.ro" &&
				section.Name != ".rodata.str1.1" && section.Name != ".rodata.str1.8") {
				continue
			}
			part, err := ScanLiterals(section.Open())
			if err != nil {
				return found, fmt.Errorf("read section %s: %w", section.Name, err)
			}
			found = found.union(part)
		}
		if found != (Literals{}) {
			return found, nil
		}
	}
	return ScanLiterals(io.NewSectionReader(file, 0, sizeBytes))
}

func (l Literals) union(o Literals) Literals {
	return Literals{
		DevInit: l.DevInit || o.DevInit, DevAllGather: l.DevAllGather || o.DevAllGather,
		MetaDDA: l.MetaDDA || o.MetaDDA,
		MetaFP8: l.MetaFP8 || o.MetaFP8, AMDDDA: l.AMDDDA || o.AMDDDA, RCCL: l.RCCL || o.RCCL, NCCL: l.NCCL || o.NCCL,
	}
}

// DetectFlavor decides the flavor from a library's exported symbols and the literals in its file.
func DetectFlavor(has func(symbol string) bool, found Literals) Flavor {
	switch {
	case has(SymbolSimulatorVersion):
		return FlavorSimulated
	case has(symbolShardedRelay), found.DevInit, found.DevAllGather:
		return FlavorRCCLXDev
	case found.MetaDDA, found.MetaFP8:
		return FlavorRCCLXStable
	case found.AMDDDA:
		return FlavorRCCLDDA
	case found.RCCL:
		return FlavorRCCL
	case found.NCCL:
		return FlavorNCCL
	}
	return FlavorUnknown
}

// ParseFlavor reads a flavor's name, as simrocmImitates or a user gives it.
func ParseFlavor(name string) (Flavor, error) {
	switch f := Flavor(name); f {
	case FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorNCCL:
		return f, nil
	}
	return FlavorUnknown,
		fmt.Errorf("library flavor %q is not known: use rccl, rccl-dda, rcclx-dev, rcclx-stable or nccl", name)
}
