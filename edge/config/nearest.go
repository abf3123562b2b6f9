package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// didYouMean gives the end of a sentence about an unknown name, or nothing
// where no known one is close.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// nearest is the known name with the fewest edits from name: one for a short
// name, two for others; "" if none is that close.
func nearest(name string, known []string) string {
	best, fewest := "", min(2, max(1, len(name)/3))+1
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if far := len(candidate) - len(name); far > 2 || far < -2 {
			continue
		}
		if n := edits(name, candidate); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// edits is the distance in bytes of Damerau and Levenshtein, in which two
// neighbours that changed places are one edit: the commonest slip of a hand.
func edits(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, ", ")
}
