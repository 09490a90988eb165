// Command imagelist prints every image that manifests name, one a line: those of containers, and those that a program
// is told to use by an argument or a variable. It reads what helm template prints.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "imagelist:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	found, err := images(in)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		// An empty list would pass for "nothing to mirror".
		return errors.New("no image in the manifests on standard input: expected what helm template prints")
	}
	for _, image := range found {
		if _, err := fmt.Fprintln(out, image); err != nil {
			return err
		}
	}
	return nil
}

// images are the references in a stream of YAML documents, sorted, each once.
func images(in io.Reader) ([]string, error) {
	found := map[string]bool{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var object any
		if err := yaml.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("a document that is no YAML: %w", err)
		}
		collect(object, found)
	}
	list := make([]string, 0, len(found))
	for image := range found {
		list = append(list, image)
	}
	slices.Sort(list)
	return list, nil
}

func collect(value any, found map[string]bool) {
	add := func(value any) {
		if image, ok := value.(string); ok && image != "" {
			found[image] = true
		}
	}
	switch v := value.(type) {
	case map[string]any:
		add(v["image"])
		// A variable of a container.
		if name, ok := v["name"].(string); ok && strings.HasSuffix(strings.ToLower(name), "image") {
			add(v["value"])
		}
		for _, child := range v {
			collect(child, found)
		}
	case []any:
		for i, child := range v {
			collect(child, found)
			// An argument, --agent-image=NAME or --agent-image NAME.
			flag, image, joined := strings.Cut(fmt.Sprint(child), "=")
			switch {
			case !strings.HasPrefix(flag, "-") || !strings.HasSuffix(flag, "image"):
			case joined:
				add(image)
			case i+1 < len(v):
				add(v[i+1])
			}
		}
	}
}
