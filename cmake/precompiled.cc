// A target of precompiled headers needs a source file, and one that is a program a main(); see PalpatePrecompiled.cmake.
int main() {}
