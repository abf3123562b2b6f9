package config

import (
	"fmt"
	"strings"
)

// Problem is one thing to change, and where.
type Problem struct {
	File    string // "" where no file is to blame
	Line    int    // from 1; 0 where it is about the file as a whole
	Column  int    // from 1, in bytes
	Message string // never holds a secret
}

// String gives "file:line:column: message", the form that editors jump to.
func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems are all that is wrong with a file, by position.
type Problems []Problem

// Error gives them one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}
