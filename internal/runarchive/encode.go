package runarchive

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Key of the record in a ConfigMap's binaryData: JSON, compressed with gzip.
	Key = "run.json.gz"
	// MaxBytes of an encoded record. Ten of them a group stay far below what etcd takes.
	MaxBytes = 256 << 10
	// maxJSONBytes bounds what a reader unpacks.
	maxJSONBytes = 8 << 20
)

// Encode packs a record. The same record gives the same bytes.
func Encode(r *Record) ([]byte, error) {
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record of run: %w", err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if packed.Len() > MaxBytes {
		return nil, fmt.Errorf("the record takes %d bytes packed, and at most %d are written", packed.Len(), MaxBytes)
	}
	return packed.Bytes(), nil
}

// Decode unpacks what Encode packed.
func Decode(packed []byte) (*Record, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("not a packed record of a run: %w", err)
	}
	return Read(r)
}

// Read takes a record as plain JSON, as kubectl commgroup results -o json writes it.
func Read(r io.Reader) (*Record, error) {
	plain, err := io.ReadAll(io.LimitReader(r, maxJSONBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a record of a run: %w", err)
	}
	if len(plain) > maxJSONBytes {
		return nil, fmt.Errorf("more than %d bytes: no record of a run is so large", maxJSONBytes)
	}
	var out Record
	if err := json.Unmarshal(plain, &out); err != nil {
		return nil, fmt.Errorf("not a record of a run: %w; kubectl commgroup results NAME -o json writes one", err)
	}
	switch {
	case out.Version == 0:
		return nil, errors.New("not a record of a run: it has no version; kubectl commgroup results NAME -o json writes one")
	case out.Version > Version:
		return nil, fmt.Errorf("the record has form %d, and this program knows up to %d: use a newer kubectl commgroup", out.Version, Version)
	case out.Run == nil || out.Run.ID == "":
		return nil, errors.New("not a record of a run: it names no run")
	}
	for i := range out.Results {
		s := &out.Results[i]
		if len(s.LatencyNanoseconds) > len(s.SizeBytes) || len(s.BusBandwidthMBps) > len(s.SizeBytes) || len(s.NoisePercent) > len(s.SizeBytes) {
			return nil, fmt.Errorf("the record of run %s is damaged: series %d has more figures than sizes", out.Run.ID, i)
		}
	}
	return &out, nil
}

// FromConfigMap unpacks the record that the controller wrote.
func FromConfigMap(cm *corev1.ConfigMap) (*Record, error) {
	packed, ok := cm.BinaryData[Key]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s/%s has no key %s: it is no record of a run", cm.Namespace, cm.Name, Key)
	}
	out, err := Decode(packed)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return out, nil
}
