package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"github.com/joho/godotenv"
)

// Dotenv gives the environment, completed by the .env file at path. What is
// set in the real environment wins, also where it is set to nothing; a file
// that isn't there adds nothing. The process's environment is not changed:
// what a child of it inherits stays what the operator gave. The error is
// Problems and names the line without what stands there.
//
// The file is read anew each time that lookup needs it, so that a key which
// was rotated there is found; one that has become unreadable since sets
// nothing. lookup may be called from several goroutines.
func Dotenv(path string) (lookup func(string) (string, bool), err error) {
	if _, err := readDotenv(path); err != nil {
		return nil, err
	}
	return func(name string) (string, bool) {
		if value, ok := os.LookupEnv(name); ok {
			return value, true
		}
		// What a broken file held before would hide that it is broken.
		file, _ := readDotenv(path)
		value, ok := file[name]
		return value, ok
	}, nil
}

func readDotenv(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Problems{{File: path, Message: "cannot be read: " + reason(err)}}
	}
	file, ok := parseDotenv(data)
	if !ok {
		return nil, Problems{{File: path, Line: badLine(data), Column: 1,
			Message: `must be NAME=value; a value with spaces or "#" in it goes between quotes that are closed`}}
	}
	return file, nil
}

func parseDotenv(data []byte) (map[string]string, bool) {
	file, err := godotenv.UnmarshalBytes(data)
	// godotenv takes a last line without "=" for the value of no name.
	_, nameless := file[""]
	return file, err == nil && !nameless
}

// badLine finds where the bad statement starts: after the longest run of
// whole lines that is good. godotenv itself reports no line, and quotes the
// values.
func badLine(data []byte) int {
	lines := bytes.SplitAfter(data, []byte("\n"))
	end := len(data)
	for i := len(lines) - 1; i > 0; i-- {
		end -= len(lines[i])
		if _, ok := parseDotenv(data[:end]); ok {
			return i + 1
		}
	}
	return 1
}
