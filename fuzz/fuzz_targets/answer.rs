#![no_main]

whin_fuzz::fuzzer!(answer);
