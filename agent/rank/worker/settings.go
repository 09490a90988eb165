package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

// settingPrefixes are of the variables that the library and its runtime take settings from.
var settingPrefixes = []string{"RCCL_", "NCCL_", "HSA_"}

// ownSettings are variables that ranks may differ in: they say where a rank is or what it logs, not which algorithm it
// takes. NCCL_CONF_FILE and NCCL_TUNER_CONFIG_FILE are not compared, what the files say is.
var ownSettings = []string{
	"NCCL_CONF_FILE", envTunerFile, "NCCL_HOSTID", "NCCL_COMM_ID", "NCCL_SOCKET_IFNAME",
	"NCCL_OOB_NET_IFNAME", "NCCL_IB_HCA",
	"NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_TOPO_DUMP_FILE_RANK", "NCCL_GRAPH_DUMP_FILE",
	"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_RAS_ADDR",
}

// envTunerFile names a table of algorithms, protocols and channels by size; a file that is not there is no table
// (rocm-systems projects/rccl csv_tuner.cc, rcclCsvTunerFindConfig).
const envTunerFile = "NCCL_TUNER_CONFIG_FILE"

// ownSettingsHash is the hash of the settings that the library in this process sees.
func ownSettingsHash(f rcclx.Flavor) string {
	home := ""
	if u, err := user.Current(); err == nil {
		home = u.HomeDir
	}
	return settingsHash(f, os.Environ(), home, os.ReadFile)
}

// settingsHash is over names and values of all settings, from the environment or a configuration file alike. The file
// is that of NCCL_CONF_FILE, else the one in the home folder, and then the system's; what is set already is not set
// again (rccl src/misc/param.cc, initEnvFunc).
func settingsHash(f rcclx.Flavor, environment []string, home string, readFile func(string) ([]byte, error)) string {
	settings := map[string]string{}
	add := func(line string) {
		name, value, ok := strings.Cut(line, "=")
		isSetting := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if _, set := settings[name]; ok && !set && slices.ContainsFunc(settingPrefixes, isSetting) {
			settings[name] = value
		}
	}
	for _, line := range environment {
		add(line)
	}
	name := "nccl.conf"
	if f.HIP() {
		name = "rccl.conf"
	}
	first := settings["NCCL_CONF_FILE"]
	if first == "" && home != "" {
		first = filepath.Join(home, "."+name)
	}
	for _, path := range []string{first, filepath.Join("/etc", name)} {
		text, err := readFile(path)
		if path == "" || err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			if line = bytes.TrimRight(line, "\r\n"); !bytes.HasPrefix(line, []byte("#")) {
				add(string(line))
			}
		}
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(ownSettings, name) {
			_, _ = fmt.Fprintf(hash, "%s=%s\n", name, settings[name])
		}
	}
	if path := settings[envTunerFile]; path != "" {
		if table, err := readFile(path); err == nil {
			_, _ = fmt.Fprintf(hash, "%s: %x\n", envTunerFile, sha256.Sum256(table))
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
