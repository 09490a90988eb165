package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// tools are programs that a page may ask to run, from anywhere or on a node. kubectl commgroup and agent are ours: the
// tests of cmd/kubectl-commgroup and cmd/agent parse each such line with the commands themselves.
var tools = strings.Fields("kubectl helm agent " +
	"amd-smi rocm-smi dmesg lspci lsmod modinfo modprobe dkms sysctl journalctl systemctl cpupower ipmitool " +
	"last uptime uname ps ls cat date df find nm ldd ip ethtool rdma ibstat ibv_devinfo ib_write_bw sminfo " +
	"ping arping traceroute ss lldpctl networkctl chronyc timedatectl crictl timeout for sleep done do " +
	"grep awk sed tr sort uniq head tail wc env ulimit")

// verbs of kubectl that the pages use; none of these changes anything, but for run, which makes a pod that goes with
// its shell.
var verbs = strings.Fields("commgroup get describe logs exec auth run")

// resources that the pages look at; those of the last line are of other projects' APIs.
var resources = strings.Fields("cg commgroup ct commtask cgr commruns cn nodes node pods pod events namespace " +
	"lease configmap configmaps secrets services resourcequota deployment daemonsets serviceaccounts " +
	"rolebindings priorityclasses networkpolicies validatingadmissionpolicy validatingadmissionpolicies " +
	"validatingwebhookconfigurations network-attachment-definitions localqueues workloads clusterqueues")

// flagsOfSMI are AMD's: of amd-smi by subcommand, as ROCm/amdsmi docs/how-to/amdsmi-cli-tool.md has them, and of
// rocm-smi.
var flagsOfSMI = map[string]string{
	"list": "", "process": "", "firmware": "", "bad-pages": "", "xgmi": "",
	"metric":   "--power --clock --temperature --ecc-blocks --mem-usage",
	"monitor":  "--power-usage --temperature --violation",
	"static":   "--limit --partition --board --asic",
	"topology": "--link-type",
	"set":      "--gpu --compute-partition --memory-partition",
	"reset":    "--gpu --gpureset --clocks",
}

const flagsOfROCmSMI = "--showperflevel --setperflevel"

var (
	quoted   = regexp.MustCompile(`'[^']*'|"(?:\\"|[^"])*"`)
	operator = regexp.MustCompile(`\|\||&&|[|;]`)
	redirect = regexp.MustCompile(`\d?>[^\s;|]+`)
)

// programs are the words of each program of a line; what is quoted counts as one word, without its content.
func programs(line string) [][]string {
	line = quoted.ReplaceAllString(line, "QUOTED")
	line, _, _ = strings.Cut(line, "#")
	line = redirect.ReplaceAllString(line, "")
	var out [][]string
	for _, part := range operator.Split(line, -1) {
		if f := strings.Fields(part); len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// lines are all commands of a reason: those of the blocks, and those in its texts that begin as one.
func (w *more) lines() []string {
	var out []string
	for _, block := range slices.Concat(w.Look, w.OnNode) {
		for line := range strings.SplitSeq(block, "\n") {
			if !strings.HasPrefix(line, "#") {
				out = append(out, line)
			}
		}
	}
	for _, text := range slices.Concat([]string{w.Means, w.Escalate, w.Ends}, w.Causes, w.Do) {
		for _, code := range code.FindAllString(text, -1) {
			code = strings.Trim(code, "`")
			if first, _, more := strings.Cut(code, " "); more &&
				(first == "kubectl" || first == "amd-smi" || first == "rocm-smi" || first == "agent") {
				out = append(out, code)
			}
		}
	}
	return out
}

var code = regexp.MustCompile("`[^`]+`")

// changing are verbs that only cures have.
var changing = strings.Fields("cordon drain uncordon delete patch annotate debug apply")

// TestCommands: each command begins with a program that is known, and AMD's tools and kubectl have what is asked of
// them.
func TestCommands(t *testing.T) {
	count := 0
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		w := words[reason]
		for _, line := range w.lines() {
			for _, p := range programs(line) {
				count++
				switch {
				case !slices.Contains(tools, p[0]):
					t.Errorf("%s: %q begins with %q, which is no program that the pages know: correct it, "+
						"or add it to tools", reason, line, p[0])
				case p[0] == "kubectl" && (len(p) < 2 || !slices.Contains(slices.Concat(verbs, changing), p[1])):
					t.Errorf("%s: %q: kubectl has no such verb here", reason, line)
				case p[0] == "kubectl" && (p[1] == "get" || p[1] == "describe") && !strings.HasPrefix(p[2], "--raw="):
					for resource := range strings.SplitSeq(p[2], ",") {
						if !slices.Contains(resources, resource) {
							t.Errorf("%s: %q: there is no resource %q that the pages know", reason, line, resource)
						}
					}
				case p[0] == "amd-smi":
					known, ok := flagsOfSMI[p[1]]
					for _, word := range p[2:] {
						ok = ok && (!strings.HasPrefix(word, "-") || slices.Contains(strings.Fields(known), word))
					}
					if !ok {
						t.Errorf("%s: %q: amd-smi has no such subcommand or flag that is known", reason, line)
					}
				case p[0] == "rocm-smi" && !slices.Contains(strings.Fields(flagsOfROCmSMI), p[1]):
					t.Errorf("%s: %q: rocm-smi has no flag %s that is known", reason, line, p[1])
				}
			}
		}
		for _, line := range slices.Concat(w.Look, w.OnNode) {
			for _, p := range programs(line) {
				if p[0] == "kubectl" && slices.Contains(changing, p[1]) ||
					p[0] == "amd-smi" && (p[1] == "set" || p[1] == "reset") {
					t.Errorf("%s: %q changes something, and stands among the commands that only look", reason, line)
				}
			}
		}
	}
	if count < 400 {
		t.Errorf("found only %d commands", count)
	}
}

// TestSelectors: what kubectl is to select and print is of the form that it takes.
func TestSelectors(t *testing.T) {
	option := regexp.MustCompile(`(?:^| )(-l|--field-selector|-o) ?=?(jsonpath=|custom-columns=)?('[^']*'|\S+)`)
	count := 0
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		w := words[reason]
		for _, line := range w.lines() {
			if !strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "kubectl commgroup ") {
				continue
			}
			for _, end := range []string{"   #", " -- ", " | "} {
				line, _, _ = strings.Cut(line, end)
			}
			for _, m := range option.FindAllStringSubmatch(line, -1) {
				value := strings.Trim(m[3], "'")
				var err error
				switch {
				case m[1] == "-l":
					_, err = labels.Parse(value)
				case m[1] == "--field-selector":
					_, err = fields.ParseSelector(value)
				case m[2] == "jsonpath=":
					err = jsonpath.New(reason).Parse(value)
				case m[2] == "custom-columns=":
					for column := range strings.SplitSeq(value, ",") {
						name, field, ok := strings.Cut(column, ":")
						if !ok || name != strings.ToUpper(name) {
							err = fmt.Errorf("%q is no column", column)
						} else if err == nil {
							err = jsonpath.New(reason).Parse("{" + field + "}")
						}
					}
				case !slices.Contains([]string{"yaml", "json", "wide"}, value):
					err = fmt.Errorf("no output %q", value)
				default:
					continue
				}
				if count++; err != nil {
					t.Errorf("%s: %q: %v", reason, line, err)
				}
			}
		}
	}
	if count < 150 {
		t.Errorf("found only %d selectors and outputs", count)
	}
}

func TestPrograms(t *testing.T) {
	got := programs(`a -b 'x | y; z' | grep "1 \" #" 2>/dev/null; c   # d | e`)
	want := [][]string{{"a", "-b", "QUOTED"}, {"grep", "QUOTED"}, {"c"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}

// path is a field of the API by its JSON names, and roots are where one may begin.
var (
	path     = regexp.MustCompile(`^\.?[a-zA-Z]+(?:\.[a-zA-Z]+)+$`)
	jsonPath = regexp.MustCompile(`\{\.([a-zA-Z.]+)\}`)
	column   = regexp.MustCompile(`[A-Z]+:\.([a-zA-Z.]+)`)
)

// TestFields: each field of a CommGroup, CommRun, CommTask or CommNode that a page names, in a command or between
// backticks, is there.
func TestFields(t *testing.T) {
	group, task, node := reflect.TypeFor[v1alpha1.CommGroup](), reflect.TypeFor[v1alpha1.CommTask](),
		reflect.TypeFor[v1alpha1.CommNode]()
	run, spec := reflect.TypeFor[v1alpha1.CommRun](), reflect.TypeFor[v1alpha1.CommGroupSpec]()
	count := 0
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		w := words[reason]
		for _, line := range slices.Concat(w.Look, w.OnNode) {
			var of reflect.Type
			switch {
			case strings.HasPrefix(line, "kubectl get cg "):
				of = group
			case strings.HasPrefix(line, "kubectl get cgr "):
				of = run
			case strings.HasPrefix(line, "kubectl get commtask "), strings.HasPrefix(line, "kubectl get ct "):
				of = task
			case strings.HasPrefix(line, "kubectl get cn "):
				of = node
			default:
				continue
			}
			for _, m := range slices.Concat(jsonPath.FindAllStringSubmatch(line, -1),
				column.FindAllStringSubmatch(line, -1)) {
				count++
				if names := strings.Split(m[1], "."); names[0] != "metadata" && !testenv.HasField(of, names...) {
					t.Errorf("%s: %q: the API has no field %s", reason, line, m[1])
				}
			}
		}
		for _, text := range slices.Concat([]string{w.Means, w.Escalate, w.Ends}, w.Causes, w.Do) {
			for _, span := range code.FindAllString(text, -1) {
				name, _, _ := strings.Cut(strings.Trim(span, "`"), ":")
				names := strings.Split(name, ".")
				switch {
				case !path.MatchString(name):
				case names[0] == "status" || names[0] == "spec":
					count++
					if !testenv.HasField(group, names...) && !testenv.HasField(run, names...) &&
						!testenv.HasField(task, names...) && !testenv.HasField(node, names...) {
						t.Errorf("%s: the API has no field %s", reason, name)
					}
				case testenv.HasField(spec, names[:1]...):
					count++
					if !testenv.HasField(spec, names...) {
						t.Errorf("%s: a CommGroup's spec has no field %s", reason, name)
					}
				}
			}
		}
	}
	if count < 150 {
		t.Errorf("found only %d fields", count)
	}
}
